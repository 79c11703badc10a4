// The headers that generated texts include, as they are in this program's sources.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_BODY_HEADERS_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_BODY_HEADERS_H_

#include <vector>

#include "ops/kernels/cuda/fusion/standard_headers.h"

namespace weft::cuda {

// Ours; StandardHeaders has what these include besides. Made from the files by the build.
std::vector<TextHeader> BodyHeaders();

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_BODY_HEADERS_H_
