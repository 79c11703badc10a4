#include "platform/byte_quantity.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {

std::string ShortNumber(double value) {
  if (value >= 100 || value == std::floor(value)) return absl::StrFormat("%.0f", value);
  return value >= 10 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.2f", value);
}

std::string ByteQuantity(int64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(ShortNumber(value), kUnits[unit]);
}

}  // namespace weft
