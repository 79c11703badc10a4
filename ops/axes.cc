#include "ops/axes.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::vector<bool>> ReducedAxes(int rank, const Tensor* axes,
                                              bool noop_with_empty_axes) {
  if (axes == nullptr || axes->num_elements() == 0) {
    return std::vector<bool>(rank, !noop_with_empty_axes);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> list, ToInt64s(*axes));
  std::vector<bool> reduced(rank, false);
  for (const int64_t axis : list) {
    const absl::StatusOr<int> normalized = NormalizeAxis(axis, rank);
    if (!normalized.ok() || reduced[*normalized]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axes has ", axis, normalized.ok() ? " twice" : "", ", expected distinct values in [",
          -rank, ", ", rank, ") for an input of rank ", rank));
    }
    reduced[*normalized] = true;
  }
  return reduced;
}

Shape ReducedShape(const Shape& input, const std::vector<bool>& reduced, bool keepdims) {
  Shape shape;
  for (int d = 0; d < input.rank(); ++d) {
    if (!reduced[d]) {
      shape.AddDim(input.dim(d));
    } else if (keepdims) {
      shape.AddDim(1);
    }
  }
  return shape;
}

int64_t NumberAt(const std::vector<int64_t>& numbers, size_t i) {
  return i < numbers.size() ? numbers[i] : 0;
}

int64_t ReducedCount(const Shape& input, const std::vector<bool>& reduced) {
  int64_t count = 1;
  for (int d = 0; d < input.rank(); ++d) {
    if (reduced[d]) count *= input.dim(d);
  }
  return count;
}

}  // namespace weft
