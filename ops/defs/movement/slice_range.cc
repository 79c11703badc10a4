#include "ops/defs/movement/slice_range.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {

SliceRange ResolveSliceRange(int64_t start, int64_t end, int64_t step, int64_t size) {
  // A larger step takes one element as well, and these cannot overflow below.
  step = std::clamp(step, -kMaxDim - 1, kMaxDim + 1);
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? size : size - 1;
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp(start, int64_t{0}, std::max<int64_t>(highest, 0));
  end = std::clamp(end, lowest, std::max(lowest, highest));
  const int64_t distance = step > 0 ? end - start : start - end;
  const int64_t stride = step > 0 ? step : -step;
  const int64_t count = size == 0 || distance <= 0 ? 0 : (distance + stride - 1) / stride;
  return SliceRange{count == 0 ? 0 : start, step, count};
}

absl::Status NormalizeSliceLists(SliceLists& lists, int rank) {
  const size_t entries = lists.starts.size();
  if (lists.axes.empty()) {
    lists.axes.resize(entries);
    std::iota(lists.axes.begin(), lists.axes.end(), 0);
  }
  if (lists.steps.empty()) lists.steps.assign(entries, 1);
  if (lists.ends.size() != entries || lists.axes.size() != entries ||
      lists.steps.size() != entries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "starts, ends, axes and steps must be equally long; they have ", entries, ", ",
        lists.ends.size(), ", ", lists.axes.size(), " and ", lists.steps.size(), " elements"));
  }
  std::vector<bool> seen(rank, false);
  for (size_t i = 0; i < entries; ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(lists.axes[i], rank));
    if (seen[axis]) {
      return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is sliced twice"));
    }
    seen[axis] = true;
    lists.axes[i] = axis;
    if (lists.steps[i] == 0) {
      return absl::InvalidArgumentError(absl::StrCat("the step of axis ", axis, " is 0"));
    }
  }
  return absl::OkStatus();
}

std::vector<SliceRange> ResolveSlice(const SliceLists& lists, const Shape& shape) {
  std::vector<SliceRange> ranges;
  for (const int64_t size : shape.dims()) ranges.push_back(SliceRange{0, 1, size});
  for (size_t i = 0; i < lists.starts.size(); ++i) {
    const int axis = static_cast<int>(lists.axes[i]);
    ranges[axis] =
        ResolveSliceRange(lists.starts[i], lists.ends[i], lists.steps[i], shape.dim(axis));
  }
  return ranges;
}

absl::StatusOr<SliceLists> SliceListsOf(const NodeView& view, int first_input, int rank) {
  SliceLists lists;
  WEFT_ASSIGN_OR_RETURN(lists.starts, RequiredInts(view, first_input));
  WEFT_ASSIGN_OR_RETURN(lists.ends, RequiredInts(view, first_input + 1));
  if (view.HasInput(first_input + 2)) {
    WEFT_ASSIGN_OR_RETURN(lists.axes, RequiredInts(view, first_input + 2));
  }
  if (view.HasInput(first_input + 3)) {
    WEFT_ASSIGN_OR_RETURN(lists.steps, RequiredInts(view, first_input + 3));
  }
  WEFT_RETURN_IF_ERROR(NormalizeSliceLists(lists, rank));
  return lists;
}

}  // namespace weft
