#include "ops/kernels/cpu/blocks/gather_index.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::cpu {
namespace {

// Position of the first index outside [-size, size), or count.
template <typename T>
int64_t FirstOutside(const T* indices, int64_t count, int64_t size) {
  // Most often none is: one pass without branches.
  bool outside = false;
  for (int64_t i = 0; i < count; ++i) outside |= indices[i] < -size || indices[i] >= size;
  if (!outside) return count;
  int64_t i = 0;
  while (indices[i] >= -size && indices[i] < size) ++i;
  return i;
}

// "[2,0]" of the flat position.
std::string PositionText(const Shape& shape, int64_t flat) {
  std::vector<int64_t> position(shape.rank());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    position[axis] = flat % shape.dim(axis);
    flat /= shape.dim(axis);
  }
  return absl::StrCat("[", absl::StrJoin(position, ","), "]");
}

}  // namespace

absl::Status GatherIndices::Check(const void* indices) const {
  const int64_t first =
      is_int64_ ? FirstOutside(static_cast<const int64_t*>(indices), count_, axis_size_)
                : FirstOutside(static_cast<const int32_t*>(indices), count_, axis_size_);
  if (first == count_) return absl::OkStatus();
  const int64_t index = is_int64_ ? static_cast<const int64_t*>(indices)[first]
                                  : static_cast<const int32_t*>(indices)[first];
  return absl::InvalidArgumentError(
      absl::StrCat("the index at ", PositionText(shape_, first), " is ", index, "; axis ", axis_,
                   " of the data has ", axis_size_, " rows, so that it must be in [", -axis_size_,
                   ", ", axis_size_, ")"));
}

}  // namespace weft::cpu
