// Axes as attributes and inputs name them; shared by declarations and kernels.
#ifndef WEFT_OPS_AXES_H_
#define WEFT_OPS_AXES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

// One flag per axis of an input of `rank`. `axes` is the value of the node's axes input; null or
// empty means all axes, or none when `noop_with_empty_axes`. Negative axes count from the end.
// InvalidArgument for an axis outside [-rank, rank) or given twice.
absl::StatusOr<std::vector<bool>> ReducedAxes(int rank, const Tensor* axes,
                                              bool noop_with_empty_axes);

// The shape with the reduced axes as 1 (`keepdims`) or left out.
Shape ReducedShape(const Shape& input, const std::vector<bool>& reduced, bool keepdims);

// Number i of a list that an attribute may cut short (Scan's axes and directions): 0 beyond its
// end.
int64_t NumberAt(const std::vector<int64_t>& numbers, size_t i);

// How many elements of `input` each element of the result stands for.
int64_t ReducedCount(const Shape& input, const std::vector<bool>& reduced);

}  // namespace weft

#endif  // WEFT_OPS_AXES_H_
