// The axes of a node that reduces, for factories.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_AXES_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_AXES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ops/axes.h"
#include "ops/kernel.h"

namespace weft::cuda {

// One flag per axis of a tensor of `rank`, from the node's input `axes_input` and attributes.
// InvalidArgument if the axes are not known when the program is compiled, or are none.
inline absl::StatusOr<std::vector<bool>> ReducedAxesOf(const PrepareContext& context, int rank,
                                                       int axes_input) {
  const bool has_axes = context.HasInput(axes_input);
  const Tensor* axes = has_axes ? context.InputValue(axes_input) : nullptr;
  if (has_axes && axes == nullptr) {
    return context.InvalidArgument("the axes must be known when the program is compiled");
  }
  return ReducedAxes(rank, axes, context.attributes().Int("noop_with_empty_axes", 0) != 0);
}

inline absl::StatusOr<std::vector<bool>> ReducedAxesOf(const PrepareContext& context) {
  return ReducedAxesOf(context, context.InputShape(0).rank(), 1);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_AXES_H_
