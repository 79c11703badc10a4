#include "tools/reports/map_json.h"

#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Keys stay in the file's order, in which a search is linear.
constexpr JsonLimits kMapLimits = {.keys = 65536};

// The double of the fewest digits that is this float32, so that 0.1f is written as 0.1.
double ShortDouble(float value) {
  if (!std::isfinite(value)) return value;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

absl::StatusOr<std::vector<Json>> JsonElements(const Tensor& values) {
  std::vector<Json> elements;
  if (values.dtype() == DType::kString) {
    for (const std::string& text : values.strings()) elements.emplace_back(text);
  } else if (values.dtype() == DType::kFloat32) {
    for (const float value : values.data<float>()) elements.emplace_back(ShortDouble(value));
  } else if (IsFloatingPoint(values.dtype())) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> numbers, ToDoubles(values));
    for (const double value : numbers) elements.emplace_back(value);
  } else {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ToInt64s(values));
    for (const int64_t value : numbers) elements.emplace_back(value);
  }
  return elements;
}

absl::StatusOr<Json> OneToJson(const Value& value) {
  const bool is_map =
      value.kind() == ValueKind::kSequence && value.elements().size() == 2 &&
      value.elements()[0].kind() == ValueKind::kTensor &&
      value.elements()[1].kind() == ValueKind::kTensor &&
      value.elements()[0].tensor().num_elements() == value.elements()[1].tensor().num_elements();
  if (!is_map) {
    return absl::InvalidArgumentError(
        absl::StrCat(value.ToString(), " is no map: expected values and as many keys"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Json> keys, JsonElements(value.elements()[1].tensor()));
  WEFT_ASSIGN_OR_RETURN(std::vector<Json> values, JsonElements(value.elements()[0].tensor()));
  Json json = Json::object();
  for (size_t i = 0; i < keys.size(); ++i) {
    json[keys[i].is_string() ? keys[i].get<std::string>() : keys[i].dump()] = std::move(values[i]);
  }
  return json;
}

absl::StatusOr<Tensor> KeysOf(const std::vector<std::string>& texts, const MapType& type) {
  const Shape shape{static_cast<int64_t>(texts.size())};
  if (type.key == DType::kString) return Tensor::OfStrings(shape, texts);
  std::vector<int64_t> keys;
  for (const std::string& text : texts) {
    if (absl::SimpleAtoi(text, &keys.emplace_back())) continue;
    return absl::InvalidArgumentError(absl::StrCat("the key '", text, "' is no int64"));
  }
  return Tensor::Of<int64_t>(shape, keys);
}

absl::StatusOr<Tensor> ValuesOf(const std::vector<Json>& elements, const MapType& type) {
  const Shape shape{static_cast<int64_t>(elements.size())};
  std::vector<std::string> texts;
  std::vector<int64_t> whole;
  std::vector<double> numbers;
  const bool is_text = type.value == DType::kString;
  const bool is_whole = !is_text && !IsFloatingPoint(type.value);
  for (const Json& element : elements) {
    const bool fits = is_text    ? element.is_string()
                      : is_whole ? element.is_number_integer()
                                 : element.is_number();
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a value is ", element.dump(-1, ' ', true, Json::error_handler_t::replace), ", expected ",
          is_text    ? "a text"
          : is_whole ? "a whole number"
                     : "a number"));
    }
    if (is_text) texts.push_back(element.get<std::string>());
    if (is_whole) whole.push_back(element.get<int64_t>());
    if (!is_text && !is_whole) numbers.push_back(element.get<double>());
  }
  if (is_text) return Tensor::OfStrings(shape, texts);
  return is_whole ? CastTensor(Tensor::Of<int64_t>(shape, whole), type.value)
                  : CastTensor(Tensor::Of<double>(shape, numbers), type.value);
}

absl::StatusOr<Value> OneFromJson(const Json& json, const MapType& type) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an object, a map from keys to values, not ", json.type_name()));
  }
  std::vector<std::string> texts;
  std::vector<Json> elements;
  for (const auto& [key, value] : json.items()) {
    texts.push_back(key);
    elements.push_back(value);
  }
  WEFT_ASSIGN_OR_RETURN(Tensor keys, KeysOf(texts, type));
  WEFT_ASSIGN_OR_RETURN(Tensor values, ValuesOf(elements, type));
  return Value::Sequence({std::move(values), std::move(keys)});
}

}  // namespace

absl::StatusOr<Json> MapToJson(const Value& value, const MapType& type) {
  if (!type.in_sequence) return OneToJson(value);
  if (value.kind() != ValueKind::kSequence) {
    return absl::InvalidArgumentError(absl::StrCat(value.ToString(), " is no sequence of maps"));
  }
  Json list = Json::array();
  for (const Value& element : value.elements()) {
    WEFT_ASSIGN_OR_RETURN(list.emplace_back(), OneToJson(element));
  }
  return list;
}

absl::StatusOr<Value> MapFromJson(const std::string& text, const MapType& type) {
  WEFT_RETURN_IF_ERROR(CheckJsonLimits(text, kMapLimits));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("it is no JSON");
  if (!type.in_sequence) return OneFromJson(json, type);
  if (!json.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a list of objects, which are maps, not ", json.type_name()));
  }
  std::vector<Value> maps;
  for (const Json& element : json) {
    auto map = OneFromJson(element, type);
    if (!map.ok()) return Annotate(map.status(), absl::StrCat("element ", maps.size()));
    maps.push_back(*std::move(map));
  }
  return Value::Sequence(std::move(maps));
}

}  // namespace weft
