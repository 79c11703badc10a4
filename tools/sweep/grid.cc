#include "tools/sweep/grid.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kMaxRangeValues = 100;

// "lora.rank" as option and key. A key may hold stops, an option's name does not.
SweepAxis AxisOf(const std::string& name) {
  const size_t stop = name.find('.');
  SweepAxis axis;
  axis.option = name.substr(0, stop);
  if (stop != std::string::npos) axis.key = name.substr(stop + 1);
  return axis;
}

bool SameValue(const std::string& a, const std::string& b) {
  double first = 0, second = 0;
  if (absl::SimpleAtod(a, &first) && absl::SimpleAtod(b, &second)) return first == second;
  return a == b;
}

// Whether the text is A..B:N or A..B:logN, and if so its values, or what is wrong with it.
absl::StatusOr<bool> ReadRange(absl::string_view text, std::vector<std::string>& values) {
  const size_t dots = text.find("..");
  const size_t colon = text.rfind(':');
  double first = 0, last = 0;
  if (dots == absl::string_view::npos || colon == absl::string_view::npos || colon < dots ||
      !absl::SimpleAtod(text.substr(0, dots), &first) ||
      !absl::SimpleAtod(text.substr(dots + 2, colon - dots - 2), &last)) {
    return false;
  }
  absl::string_view count_text = text.substr(colon + 1);
  const bool is_log = absl::ConsumePrefix(&count_text, "log");
  int count = 0;
  if (!absl::SimpleAtoi(count_text, &count) || count < 2 || count > kMaxRangeValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': expected a number of values from 2 to ", kMaxRangeValues,
                     " behind ':', as 1e-4..1e-1:log4"));
  }
  if (is_log && !(first > 0 && last > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': equal ratios need two numbers above 0"));
  }
  for (int i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) / (count - 1);
    const double value =
        is_log ? first * std::pow(last / first, part) : first + part * (last - first);
    values.push_back(absl::StrFormat("%.6g", value));
  }
  return true;
}

absl::Status CheckAxis(const SweepAxis& axis) {
  for (size_t i = 0; i < axis.values.size(); ++i) {
    if (axis.values[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--sweep ", axis.Name(), "=: a value is empty; expected ", axis.Name(), "=VALUE,VALUE"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!SameValue(axis.values[i], axis.values[j])) continue;
      return absl::InvalidArgumentError(absl::StrCat("--sweep ", axis.Name(), ": ", axis.values[j],
                                                     " and ", axis.values[i],
                                                     " are the same value; leave one out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SweepAxis>> ParseSweepAxes(const std::vector<std::string>& texts,
                                                      const IsOptionFn& is_option) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : texts) {
    bool is_first = true;
    for (const std::string& piece : std::vector<std::string>(absl::StrSplit(text, ','))) {
      const size_t equals = piece.find('=');
      const std::string name = piece.substr(0, equals);
      if (is_first && (equals == std::string::npos || equals == 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--sweep ", text, ": expected FLAG=VALUE,VALUE, as lr=0.1,0.03"));
      }
      const bool begins =
          is_first || (equals != std::string::npos && is_option(AxisOf(name).option));
      is_first = false;
      if (begins) axes.push_back(AxisOf(name));
      const std::string value = begins ? piece.substr(equals + 1) : piece;
      auto is_range = ReadRange(value, axes.back().values);
      if (!is_range.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--sweep ", text, ": ", is_range.status().message()));
      }
      if (!*is_range) axes.back().values.push_back(value);
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckAxis(axes[i]));
    for (size_t j = 0; j < i; ++j) {
      if (axes[i].Name() != axes[j].Name()) continue;
      return absl::InvalidArgumentError(absl::StrCat("--sweep ", axes[i].Name(),
                                                     " is given twice; give all its values at once"
                                                     ", as ",
                                                     axes[i].Name(), "=VALUE,VALUE"));
    }
  }
  return axes;
}

absl::StatusOr<std::vector<std::vector<size_t>>> GridPoints(const std::vector<SweepAxis>& axes) {
  int64_t trials = 1;
  for (const SweepAxis& axis : axes) {
    trials *= static_cast<int64_t>(axis.values.size());
    if (trials > kMaxTrials) {
      return absl::InvalidArgumentError(absl::StrCat("--sweep: these values have more than ",
                                                     kMaxTrials,
                                                     " combinations; sweep fewer at once"));
    }
  }
  std::vector<std::vector<size_t>> points;
  for (int64_t trial = 0; trial < trials; ++trial) {
    std::vector<size_t> point(axes.size());
    auto rest = static_cast<size_t>(trial);
    for (size_t axis = axes.size(); axis-- > 0;) {
      point[axis] = rest % axes[axis].values.size();
      rest /= axes[axis].values.size();
    }
    points.push_back(std::move(point));
  }
  return points;
}

std::string GridText(const std::vector<SweepAxis>& axes, size_t trials) {
  std::vector<std::string> texts;
  for (const SweepAxis& axis : axes) {
    const size_t values = axis.values.size();
    texts.push_back(absl::StrCat(axis.Name(), " (", values, values == 1 ? " value)" : " values)"));
  }
  return absl::StrCat(trials, trials == 1 ? " trial: " : " trials: ", absl::StrJoin(texts, " x "));
}

}  // namespace weft
