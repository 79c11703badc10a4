// The windows of a pool's node, for a GPU. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_POOL_POOL_GEOMETRY_H_
#define WEFT_OPS_KERNELS_CUDA_POOL_POOL_GEOMETRY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/pool/pool_calls.h"
#include "ops/window.h"

namespace weft::cuda {

// Of resolved windows. Unimplemented for more than three image axes, and for planes, or windows
// with their padding, of 2^30 elements and more.
absl::StatusOr<PoolGeometry> GeometryOf(const PrepareContext& context, int64_t planes,
                                        const std::vector<WindowAxis>& axes);
// From the node's attributes; InvalidArgument when x and y do not belong together.
absl::StatusOr<PoolGeometry> PoolOf(const PrepareContext& context, const Shape& x, const Shape& y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_POOL_POOL_GEOMETRY_H_
