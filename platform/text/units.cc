#include "platform/text/units.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A quantity is its number x factor / divisor; both are exact, so that the result is rounded once.
struct Unit {
  const char* name;
  double factor;
  double divisor = 1;
};

const std::vector<Unit>& ByteUnits() {
  static const auto* const units = new std::vector<Unit>{
      {"B", 1},     {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  return *units;
}

const std::vector<Unit>& BandwidthUnits() {
  static const auto* const units = new std::vector<Unit>{
      {"bit/s", 0.125},  {"kbit/s", 125},   {"Mbit/s", 125e3}, {"Gbit/s", 125e6}, {"Tbit/s", 125e9},
      {"B/s", 1},        {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},     {"TB/s", 1e12},
      {"KiB/s", 1024.0}, {"MiB/s", 0x1p20}, {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40}};
  return *units;
}

const std::vector<Unit>& TimeUnits() {
  static const auto* const units =
      new std::vector<Unit>{{"ns", 1, 1e9}, {"us", 1, 1e6}, {"ms", 1, 1e3}, {"s", 1}};
  return *units;
}

absl::Status BadUnit(const std::string& text, const char* example, const std::vector<Unit>& units) {
  const auto name = [](std::string* out, const Unit& unit) { absl::StrAppend(out, unit.name); };
  return absl::InvalidArgumentError(absl::StrCat("'", text,
                                                 "' is not a number with a unit such as ", example,
                                                 "; units are ", absl::StrJoin(units, ", ", name)));
}

// A number of at least zero and a unit, with or without a blank between them.
absl::StatusOr<double> ParseQuantity(const std::string& text, const char* example,
                                     const std::vector<Unit>& units, bool needs_unit) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, digits);
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  if (!unit.empty() && unit[0] == ' ') unit.erase(0, 1);
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) return BadUnit(text, example, units);
  if (unit.empty() && !needs_unit) unit = units.front().name;
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    const double quantity = value * known.factor / known.divisor;
    if (std::isfinite(quantity)) return quantity;
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large for a number"));
  }
  return BadUnit(text, example, units);
}

// The shortest decimal text that reads back as `value`.
std::string ShortestDecimal(double value) {
  for (int digits = 1; digits <= 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// In the largest unit of which `value` is an exact, plainly written multiple.
std::string QuantityToString(double value, const std::vector<Unit>& units) {
  std::string best;
  for (const Unit& unit : units) {
    const double count = value * unit.divisor / unit.factor;
    const std::string text = ShortestDecimal(count);
    const bool is_plain = text.find('e') == std::string::npos && count >= 1;
    if (is_plain && count * unit.factor / unit.divisor == value &&
        (best.empty() || text.size() <= best.find_first_not_of("0123456789."))) {
      best = absl::StrCat(text, unit.name);
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(const double bytes,
                        ParseQuantity(text, "4GiB", ByteUnits(), /*needs_unit=*/false));
  if (bytes >= 0x1p62) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is more than 2^62 bytes"));
  }
  return static_cast<int64_t>(std::llround(bytes));
}

absl::StatusOr<double> ParseBandwidth(const std::string& text) {
  return ParseQuantity(text, "25Gbit/s", BandwidthUnits(), /*needs_unit=*/true);
}

absl::StatusOr<double> ParseSeconds(const std::string& text) {
  return ParseQuantity(text, "50us", TimeUnits(), /*needs_unit=*/true);
}

std::string BytesToString(int64_t bytes) {
  static constexpr struct {
    const char* name;
    int shift;
  } kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& unit : kUnits) {
    const int64_t size = int64_t{1} << unit.shift;
    if (bytes >= size && bytes % size == 0) return absl::StrCat(bytes / size, unit.name);
  }
  return absl::StrCat(bytes, "B");
}

std::string BandwidthToString(double bytes_per_second) {
  const std::string text = QuantityToString(bytes_per_second, BandwidthUnits());
  return text.empty() ? absl::StrFormat("%.17fB/s", bytes_per_second) : text;
}

std::string SecondsToString(double seconds) {
  const std::string text = QuantityToString(seconds, TimeUnits());
  return text.empty() ? absl::StrFormat("%.30fs", seconds) : text;
}

}  // namespace weft
