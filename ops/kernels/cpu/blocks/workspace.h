// How a kernel divides its workspace.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_WORKSPACE_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_WORKSPACE_H_

#include <cstddef>

#include "tensor/buffer.h"

namespace weft::cpu {

// Hands out 64-byte-aligned pieces of a kernel's workspace.
class WorkspaceLayout {
 public:
  // The offset of a new piece.
  size_t Add(size_t bytes) {
    const size_t offset = total_;
    total_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};
inline void* At(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_WORKSPACE_H_
