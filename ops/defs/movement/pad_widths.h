// How many elements Pad and CenterCropPad add or remove at the ends of each axis.
#ifndef WEFT_OPS_DEFS_MOVEMENT_PAD_WIDTHS_H_
#define WEFT_OPS_DEFS_MOVEMENT_PAD_WIDTHS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/shape.h"

namespace weft {

// Pad's attribute mode.
enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };

// InvalidArgument for other names.
absl::StatusOr<PadMode> ParsePadMode(const std::string& mode);

// Along one axis; negative: removed.
struct PadWidth {
  int64_t begin = 0;
  int64_t end = 0;
};

// One per axis of a tensor of `rank`, from Pad's inputs `pads` and `axes` (nullopt: all axes).
// InvalidArgument when they do not fit each other or the rank.
absl::StatusOr<std::vector<PadWidth>> ReadPadWidths(
    int rank, const std::vector<int64_t>& pads, const std::optional<std::vector<int64_t>>& axes);

// The size of an axis after padding. InvalidArgument when it would be negative or too large.
absl::StatusOr<int64_t> PaddedSize(int64_t size, const PadWidth& width);

// For each element after padding the index of the element it comes from; -1: the constant.
// InvalidArgument when the mode has nothing to take from. REQUIRES: PaddedSize is ok.
absl::StatusOr<std::vector<int64_t>> PadTable(int64_t size, const PadWidth& width, PadMode mode);

// What CenterCropPad does to an axis of `size` that shall have `target` elements: the middle stays,
// and the odd element is added or removed at the end.
PadWidth CenteredWidth(int64_t size, int64_t target);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MOVEMENT_PAD_WIDTHS_H_
