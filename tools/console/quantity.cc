#include "tools/console/quantity.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

template <size_t kCount>
std::string Scaled(double value, double base, const char* const (&units)[kCount]) {
  size_t unit = 0;
  while (value >= base && unit + 1 < kCount) {
    value /= base;
    ++unit;
  }
  return absl::StrCat(ShortNumber(value), units[unit]);
}

}  // namespace

std::string Quantity(double value) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  return Scaled(value, 1000, kUnits);
}

std::string DurationText(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
}

}  // namespace weft
