#include "ops/defs/movement/pad_widths.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<PadMode> ParsePadMode(const std::string& mode) {
  if (mode == "constant" || mode.empty()) return PadMode::kConstant;
  if (mode == "reflect") return PadMode::kReflect;
  if (mode == "edge") return PadMode::kEdge;
  if (mode == "wrap") return PadMode::kWrap;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute 'mode' is '", mode, "', expected constant, reflect, edge or wrap"));
}

absl::StatusOr<std::vector<PadWidth>> ReadPadWidths(
    int rank, const std::vector<int64_t>& pads, const std::optional<std::vector<int64_t>>& axes) {
  std::vector<int64_t> padded(rank);
  std::iota(padded.begin(), padded.end(), 0);
  if (axes.has_value()) padded = *axes;
  if (pads.size() != 2 * padded.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input 'pads' has ", pads.size(),
                                                   " values, expected two for each of ",
                                                   padded.size(), " axes"));
  }
  std::vector<PadWidth> widths(rank);
  std::vector<bool> seen(rank, false);
  for (size_t i = 0; i < padded.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(padded[i], rank));
    if (seen[axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat("input 'axes' names axis ", axis, " more than once"));
    }
    seen[axis] = true;
    const int64_t begin = pads[i];
    const int64_t end = pads[padded.size() + i];
    if (std::max(begin, end) > kMaxDim || std::min(begin, end) < -kMaxDim) {
      return absl::InvalidArgumentError(
          absl::StrCat("input 'pads' asks for ", begin, " and ", end, " on axis ", axis));
    }
    widths[axis] = PadWidth{begin, end};
  }
  return widths;
}

absl::StatusOr<int64_t> PaddedSize(int64_t size, const PadWidth& width) {
  const int64_t padded = size + width.begin + width.end;
  if (padded >= 0 && padded <= kMaxDim) return padded;
  return absl::InvalidArgumentError(absl::StrCat("padding ", width.begin, " and ", width.end,
                                                 " makes a dimension of ", size, " one of ",
                                                 padded));
}

constexpr int64_t kLongestTable = int64_t{1} << 28;

absl::StatusOr<std::vector<int64_t>> PadTable(int64_t size, const PadWidth& width, PadMode mode) {
  const int64_t first = std::max<int64_t>(-width.begin, 0);              // that stays
  const int64_t kept = size - first - std::max<int64_t>(-width.end, 0);  // how many stay
  const int64_t before = std::max<int64_t>(width.begin, 0);
  const int64_t padded = size + width.begin + width.end;
  if (padded > kLongestTable) {
    return absl::InvalidArgumentError(
        absl::StrCat("an axis of ", padded, " elements is too long to be padded"));
  }
  if (mode != PadMode::kConstant && kept <= 0 && padded > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an axis of ", size, " elements has none to pad with in this mode, pads are ",
                     width.begin, " and ", width.end));
  }
  std::vector<int64_t> table(padded);
  for (int64_t i = 0; i < padded; ++i) {
    int64_t position = i - before;  // in what stays
    if (position < 0 || position >= kept) {
      switch (mode) {
        case PadMode::kConstant:
          table[i] = -1;
          continue;
        case PadMode::kEdge:
          position = std::clamp<int64_t>(position, 0, kept - 1);
          break;
        case PadMode::kWrap:
          position = (position % kept + kept) % kept;
          break;
        case PadMode::kReflect: {
          const int64_t period = std::max<int64_t>(2 * (kept - 1), 1);
          position = (position % period + period) % period;
          if (position >= kept) position = period - position;
          break;
        }
      }
    }
    table[i] = first + position;
  }
  return table;
}

PadWidth CenteredWidth(int64_t size, int64_t target) {
  const int64_t difference = target - size;
  const int64_t begin = difference / 2;  // towards zero
  return PadWidth{begin, difference - begin};
}

}  // namespace weft
