// The grid of a sweep: which flags take which values, and all combinations.
#ifndef WEFT_TOOLS_SWEEP_GRID_H_
#define WEFT_TOOLS_SWEEP_GRID_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// One swept flag with its values, as they were written: at least one, no two equal.
struct SweepAxis {
  std::string option;  // its long name without dashes: "lr"
  // What stands before '=' in the flag's own value: "rank" of `--lora rank=8`, "head/*" of
  // `--lr 'head/*=0.1'`. "": the flag's value is the swept one.
  std::string key = {};
  std::vector<std::string> values;

  // "lr", "lora.rank".
  std::string Name() const { return key.empty() ? option : option + "." + key; }
};

// Says whether train has an option of this long name.
using IsOptionFn = std::function<bool(std::string_view name)>;

// Reads texts like "lr=0.1,0.03" and "lora.rank=4,8", one per --sweep. One text may hold several
// axes ("lr=0.1,0.03,batch=32,64"): what begins with the name of an option and '=' begins a new
// one. A value A..B:N stands for N values at equal distances from A to B, A..B:logN for N at equal
// ratios; they are written with six significant digits. InvalidArgument, showing the text: no '=',
// no values, a value twice (numbers are compared as numbers), an axis twice.
absl::StatusOr<std::vector<SweepAxis>> ParseSweepAxes(const std::vector<std::string>& texts,
                                                      const IsOptionFn& is_option);

// The combinations of a grid, at most.
inline constexpr int64_t kMaxTrials = 1000;

// All combinations, each with the index of a value by axis; the last axis changes fastest.
// InvalidArgument where there are more than kMaxTrials.
absl::StatusOr<std::vector<std::vector<size_t>>> GridPoints(const std::vector<SweepAxis>& axes);

// "6 trials: lr (3 values) x batch (2 values)".
std::string GridText(const std::vector<SweepAxis>& axes, size_t trials);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_GRID_H_
