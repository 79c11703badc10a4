// Host memory that somebody else owns, as a Buffer.
#ifndef WEFT_TENSOR_HOST_MEMORY_H_
#define WEFT_TENSOR_HOST_MEMORY_H_

#include <cstddef>
#include <memory>

#include "tensor/buffer.h"

namespace weft {

// Read-only or foreign host memory (a mapped file, a protobuf's bytes) kept alive by `owner`.
// `data` need not be aligned: who needs alignment checks it and copies.
std::shared_ptr<Buffer> AdoptHostMemory(const void* data, size_t size,
                                        std::shared_ptr<const void> owner);

}  // namespace weft

#endif  // WEFT_TENSOR_HOST_MEMORY_H_
