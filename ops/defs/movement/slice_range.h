// What a Slice takes of each axis, resolved from its starts, ends, axes and steps.
#ifndef WEFT_OPS_DEFS_MOVEMENT_SLICE_RANGE_H_
#define WEFT_OPS_DEFS_MOVEMENT_SLICE_RANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_schema.h"

namespace weft {

// Elements first, first + step, ... (count of them) of one axis. `step` may be negative.
struct SliceRange {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  // The axis as it is.
  bool IsWhole(int64_t size) const { return first == 0 && step == 1 && count == size; }
};

// One entry of starts, ends and steps against an axis of `size`, by ONNX's rules: negative
// positions count from the end, positions outside are clamped. REQUIRES: step != 0, size >= 0.
SliceRange ResolveSliceRange(int64_t start, int64_t end, int64_t step, int64_t size);

// The lists of a Slice node: as they stand in its inputs, with defaults filled in.
struct SliceLists {
  std::vector<int64_t> starts;
  std::vector<int64_t> ends;
  std::vector<int64_t> axes;
  std::vector<int64_t> steps;
};

// InvalidArgument when the lists differ in length, an axis is outside `rank` or named twice, or a
// step is 0. Afterwards `axes` are in 0..rank-1 and all lists are as long as `starts`. Absent axes
// and steps come as empty lists.
absl::Status NormalizeSliceLists(SliceLists& lists, int rank);

// The range of every axis of `shape`. REQUIRES: normalized lists.
std::vector<SliceRange> ResolveSlice(const SliceLists& lists, const Shape& shape);

// The lists of `view`'s inputs first_input .. first_input + 3, normalized for `rank`; their values
// must be known.
absl::StatusOr<SliceLists> SliceListsOf(const NodeView& view, int first_input, int rank);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MOVEMENT_SLICE_RANGE_H_
