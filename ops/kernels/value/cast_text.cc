// Cast from and to strings.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- To strings

// Digits and exponent, d.ddde[+-]xx, laid out as plain digits where these are few ("0.0001",
// "314.15926", "1.0"), and with an exponent of two digits or more elsewhere ("1e-05", "1.5e+16").
std::string LaidOut(const std::string& scientific) {
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (size_t i = negative ? 1 : 0; i < e; ++i) {
    if (scientific[i] != '.') digits.push_back(scientific[i]);
  }
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  std::string text = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    text.push_back(digits[0]);
    if (digits.size() > 1) absl::StrAppend(&text, ".", digits.substr(1));
    const std::string size = absl::StrCat(std::abs(exponent));
    return absl::StrCat(text, "e", exponent < 0 ? "-" : "+", size.size() < 2 ? "0" : "", size);
  }
  if (exponent < 0) {
    return absl::StrCat(text, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return absl::StrCat(text, digits, std::string(whole - digits.size(), '0'), ".0");
  }
  return absl::StrCat(text, digits.substr(0, whole), ".", digits.substr(whole));
}

std::optional<std::string> SpecialText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return std::nullopt;
}

// The fewest digits that give the value back.
template <typename T>
std::string ShortestText(T value) {
  if (const auto special = SpecialText(value)) return *special;
  char buffer[64];
  const auto end =
      std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::scientific);
  return LaidOut(std::string(buffer, end.ptr));
}

// The same for a dtype narrower than float32, by trying.
absl::StatusOr<std::string> NarrowText(DType dtype, double value) {
  if (const auto special = SpecialText(value)) return *special;
  for (int precision = 0; precision < 9; ++precision) {
    char buffer[64];
    const auto end = std::to_chars(std::begin(buffer), std::end(buffer), value,
                                   std::chars_format::scientific, precision);
    const std::string text(buffer, end.ptr);
    double read = 0;
    if (!absl::SimpleAtod(text, &read)) break;
    WEFT_ASSIGN_OR_RETURN(const Tensor rounded, CastTensor(Tensor::Scalar<double>(read), dtype));
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> back, ToDoubles(rounded));
    if (back[0] == value) return LaidOut(text);
  }
  return ShortestText(static_cast<float>(value));
}

absl::StatusOr<std::vector<std::string>> CastToTexts(const Tensor& tensor) {
  std::vector<std::string> texts;
  const DType dtype = tensor.dtype();
  if (dtype == DType::kString)
    return std::vector<std::string>(tensor.strings().begin(), tensor.strings().end());
  if (dtype == DType::kBool) {
    for (const bool value : tensor.data<bool>()) texts.push_back(value ? "True" : "False");
  } else if (dtype == DType::kUint64) {
    for (const uint64_t value : tensor.data<uint64_t>()) texts.push_back(absl::StrCat(value));
  } else if (IsInteger(dtype)) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ToInt64s(tensor));
    for (const int64_t value : values) texts.push_back(absl::StrCat(value));
  } else if (dtype == DType::kFloat32) {
    for (const float value : tensor.data<float>()) texts.push_back(ShortestText(value));
  } else if (dtype == DType::kFloat64) {
    for (const double value : tensor.data<double>()) texts.push_back(ShortestText(value));
  } else {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(tensor));
    for (const double value : values) {
      WEFT_ASSIGN_OR_RETURN(texts.emplace_back(), NarrowText(dtype, value));
    }
  }
  return texts;
}

// ---- From strings

template <typename T>
bool ParseFloat(absl::string_view text, T& value) {
  if constexpr (std::is_same_v<T, float>) {
    return absl::SimpleAtof(text, &value);
  } else {
    return absl::SimpleAtod(text, &value);
  }
}

absl::Status NotANumber(const ValueContext& context, int64_t position, const std::string& text) {
  return context.InvalidArgument(
      absl::StrCat("element ", position, ", '", text, "', is no number"));
}

// One value per string of the input. T is float, double, int64_t or uint64_t.
template <typename T>
absl::StatusOr<Tensor> Parse(const ValueContext& context, const Tensor& input) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(input.num_elements()));
  for (const std::string& text : input.strings()) {
    const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
    const auto position = static_cast<int64_t>(values.size());
    T value{};
    if constexpr (std::is_floating_point_v<T>) {
      if (!ParseFloat(trimmed, value)) return NotANumber(context, position, text);
    } else if (!absl::SimpleAtoi(trimmed, &value)) {
      double wide = 0;
      if (!absl::SimpleAtod(trimmed, &wide) || std::isnan(wide)) {
        return NotANumber(context, position, text);
      }
      constexpr double kEnd = std::is_signed_v<T> ? 0x1p63 : 0x1p64;
      value = wide >= kEnd ? std::numeric_limits<T>::max()
              : wide <= static_cast<double>(std::numeric_limits<T>::min())
                  ? std::numeric_limits<T>::min()
                  : static_cast<T>(wide);
    }
    values.push_back(value);
  }
  return Tensor::Of<T>(input.shape(), values);
}

absl::StatusOr<Tensor> ParseBools(const ValueContext& context, const Tensor& input) {
  WEFT_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DType::kBool, input.shape()));
  const auto values = output.mutable_data<bool>();
  int64_t i = 0;
  for (const std::string& text : input.strings()) {
    const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
    double number = 0;
    if (absl::EqualsIgnoreCase(trimmed, "true")) {
      number = 1;
    } else if (!absl::EqualsIgnoreCase(trimmed, "false") && !absl::SimpleAtod(trimmed, &number)) {
      return NotANumber(context, i, text);
    }
    values[static_cast<size_t>(i++)] = number != 0;
  }
  return output;
}

absl::StatusOr<Tensor> CastToNumbers(const ValueContext& context, const Tensor& input, DType to) {
  if (to == DType::kFloat32) return Parse<float>(context, input);
  if (to == DType::kFloat64) return Parse<double>(context, input);
  if (to == DType::kBool) return ParseBools(context, input);
  absl::StatusOr<Tensor> wide = to == DType::kUint64 ? Parse<uint64_t>(context, input)
                                : IsInteger(to)      ? Parse<int64_t>(context, input)
                                                     : Parse<double>(context, input);
  if (!wide.ok() || wide->dtype() == to) return wide;
  CastOptions options;
  options.saturate = context.attributes().Int("saturate", 1) != 0;
  return CastTensor(*wide, to, options);
}

absl::Status RunCast(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const auto to = static_cast<DType>(context.attributes().Int("to", 0));
  if (to == DType::kString) {
    absl::StatusOr<std::vector<std::string>> texts = CastToTexts(input);
    if (!texts.ok()) return context.Unimplemented(std::string(texts.status().message()));
    context.SetOutput(0, Tensor::OfStrings(input.shape(), *std::move(texts)));
    return absl::OkStatus();
  }
  const bool complex = to == DType::kComplex64 || to == DType::kComplex128;
  if (input.dtype() != DType::kString || complex) {
    return context.Unimplemented(absl::StrCat("no conversion to ", std::string(DTypeName(to))));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor output, CastToNumbers(context, input, to));
  context.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Cast", RunCast);

}  // namespace
}  // namespace weft::cpu
