// Which segments of the forward pass run again where segments are cut by number
// (Plan::recompute_segments). Internal to placement/.
#ifndef WEFT_PLACEMENT_RULES_RECOMPUTED_SEGMENTS_H_
#define WEFT_PLACEMENT_RULES_RECOMPUTED_SEGMENTS_H_

#include <string_view>

namespace weft {

// The last segment of the last stage does not run again. On one stage, or at the end of a pipeline,
// the backward pass of a micro-batch follows its forward pass at once: what that made is still
// there. But "gpipe" runs all forward passes first.
inline bool LastSegmentIsFresh(int stages, std::string_view schedule) {
  return stages == 1 || schedule != "gpipe";
}

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_RECOMPUTED_SEGMENTS_H_
