// DictVectorizer, CastMap and ZipMap of ai.onnx.ml; a map is a sequence of values [n] and keys [n].
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct MapOperand {
  Tensor keys;
  Tensor values;
};

absl::StatusOr<MapOperand> MapOf(const ValueContext& context, DType keys) {
  const Value& value = context.Input(0);
  const bool is_map = value.kind() == ValueKind::kSequence && value.elements().size() == 2 &&
                      value.elements()[0].kind() == ValueKind::kTensor &&
                      value.elements()[1].kind() == ValueKind::kTensor;
  if (!is_map) {
    return context.InvalidArgument(
        absl::StrCat("its input is ", value.ToString(), ", expected a map: values and keys"));
  }
  MapOperand map{value.elements()[1].tensor(), value.elements()[0].tensor()};
  if (map.keys.shape().rank() != 1 || map.keys.shape() != map.values.shape()) {
    return context.InvalidArgument(absl::StrCat("a map has keys ", map.keys.shape().ToString(),
                                                " and values ", map.values.shape().ToString(),
                                                ", expected a list of each, of one length"));
  }
  if (map.keys.dtype() != keys) {
    return context.InvalidArgument(absl::StrCat("the keys of the map are ",
                                                std::string(DTypeName(map.keys.dtype())),
                                                ", expected ", std::string(DTypeName(keys))));
  }
  return map;
}

// ---- DictVectorizer

// Of each key, its place among `vocabulary`, or -1. The first of equal words counts.
template <typename Key, typename Keys>
std::vector<int64_t> PlacesOf(const Keys& keys, const std::vector<Key>& vocabulary) {
  std::map<Key, int64_t> known;
  for (const Key& word : vocabulary) known.emplace(word, static_cast<int64_t>(known.size()));
  std::vector<int64_t> places;
  for (const Key& key : keys) {
    const auto found = known.find(key);
    places.push_back(found == known.end() ? -1 : found->second);
  }
  return places;
}

// Values at the places of their keys, zeros or empty texts elsewhere. The standard wants every key
// in the vocabulary; as other runtimes do, and scikit-learn, what is not there is left out.
absl::Status RunDictVectorizer(ValueContext& context) {
  const Attributes& attributes = context.attributes();
  const bool by_text = attributes.Has("string_vocabulary");
  WEFT_ASSIGN_OR_RETURN(const MapOperand map,
                        MapOf(context, by_text ? DType::kString : DType::kInt64));
  const std::vector<std::string> texts = attributes.Strings("string_vocabulary");
  const std::vector<int64_t> numbers = attributes.Ints("int64_vocabulary");
  const auto columns = static_cast<int64_t>(by_text ? texts.size() : numbers.size());
  const std::vector<int64_t> places =
      by_text ? PlacesOf(map.keys.strings(), texts) : PlacesOf(map.keys.data<int64_t>(), numbers);
  if (map.values.dtype() == DType::kString) {
    std::vector<std::string> row(static_cast<size_t>(columns));
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] >= 0) row[static_cast<size_t>(places[i])] = map.values.strings()[i];
    }
    context.SetOutput(0, Tensor::OfStrings(Shape{1, columns}, row));
    return absl::OkStatus();
  }
  const int64_t width = DTypeBytes(map.values.dtype(), 1);
  WEFT_ASSIGN_OR_RETURN(Tensor row, Tensor::Zeros(map.values.dtype(), Shape{1, columns}));
  const auto* const from = static_cast<const char*>(map.values.raw_data());
  auto* const to = static_cast<char*>(row.raw_data());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) continue;
    std::memcpy(to + places[i] * width, from + static_cast<int64_t>(i) * width,
                static_cast<size_t>(width));
  }
  context.SetOutput(0, std::move(row));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("ai.onnx.ml", "DictVectorizer", RunDictVectorizer);

// ---- CastMap

// The values of a map as texts: numbers with six digits behind the point, as std::to_string has
// them.
absl::StatusOr<std::vector<std::string>> MapTexts(const Tensor& values) {
  if (values.dtype() == DType::kString) {
    return std::vector<std::string>(values.strings().begin(), values.strings().end());
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> numbers, ToDoubles(values));
  std::vector<std::string> texts;
  for (const double number : numbers) texts.push_back(std::to_string(number));
  return texts;
}

absl::StatusOr<std::vector<double>> MapNumbers(const ValueContext& context, const Tensor& values) {
  if (values.dtype() != DType::kString) return ToDoubles(values);
  std::vector<double> numbers;
  for (const std::string& text : values.strings()) {
    if (absl::SimpleAtod(text, &numbers.emplace_back())) continue;
    return context.InvalidArgument(absl::StrCat("the value '", text, "' is no number"));
  }
  return numbers;
}

// Where each entry goes: by ascending key, or, in sparse form, where its key says.
absl::StatusOr<std::vector<size_t>> PlacesByKey(const ValueContext& context,
                                                std::span<const int64_t> keys, bool sparse,
                                                int64_t columns) {
  std::map<int64_t, size_t> order;  // entries by key
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!order.emplace(keys[i], i).second) {
      return context.InvalidArgument(absl::StrCat("the map has the key ", keys[i], " twice"));
    }
  }
  std::vector<size_t> places(keys.size());
  size_t next = 0;
  for (const auto& [key, entry] : order) {
    if (sparse && (key < 0 || key >= columns)) {
      return context.InvalidArgument(absl::StrCat("the map has the key ", key,
                                                  ", expected 0 to less than max_map, ", columns));
    }
    places[entry] = sparse ? static_cast<size_t>(key) : next++;
  }
  return places;
}

template <typename T>
std::vector<T> Placed(const std::vector<T>& values, const std::vector<size_t>& places,
                      int64_t columns, const T& filling) {
  std::vector<T> row(static_cast<size_t>(columns), filling);
  for (size_t i = 0; i < places.size(); ++i) row[places[i]] = values[i];
  return row;
}

// Of whole numbers toward zero. InvalidArgument when one does not fit.
absl::StatusOr<std::vector<int64_t>> Truncated(const ValueContext& context,
                                               const std::vector<double>& numbers) {
  std::vector<int64_t> whole;
  for (const double number : numbers) {
    if (!(std::abs(number) < 0x1p63)) {
      return context.InvalidArgument(absl::StrCat("the value ", number, " is no int64"));
    }
    whole.push_back(static_cast<int64_t>(number));
  }
  return whole;
}

absl::Status RunCastMap(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const MapOperand map, MapOf(context, DType::kInt64));
  const Attributes& attributes = context.attributes();
  const bool sparse = attributes.String("map_form", "DENSE") == "SPARSE";
  const int64_t columns = sparse ? attributes.Int("max_map", 1) : map.keys.num_elements();
  WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                        PlacesByKey(context, map.keys.data<int64_t>(), sparse, columns));
  const std::string to = attributes.String("cast_to", "TO_FLOAT");
  const Shape shape{1, columns};
  if (to == "TO_STRING") {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, MapTexts(map.values));
    context.SetOutput(0,
                      Tensor::OfStrings(shape, Placed(texts, places, columns, std::string("0"))));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> numbers, MapNumbers(context, map.values));
  if (to == "TO_INT64") {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> whole, Truncated(context, numbers));
    context.SetOutput(0, Tensor::Of<int64_t>(shape, Placed(whole, places, columns, int64_t{0})));
    return absl::OkStatus();
  }
  const std::vector<float> floats(numbers.begin(), numbers.end());
  context.SetOutput(0, Tensor::Of<float>(shape, Placed(floats, places, columns, 0.0f)));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("ai.onnx.ml", "CastMap", RunCastMap);

// ---- ZipMap

Tensor LabelsOf(const Attributes& attributes) {
  if (attributes.Has("classlabels_strings")) {
    const std::vector<std::string> names = attributes.Strings("classlabels_strings");
    return Tensor::OfStrings(Shape{static_cast<int64_t>(names.size())}, names);
  }
  const std::vector<int64_t> numbers = attributes.Ints("classlabels_int64s");
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(numbers.size())}, numbers);
}

// A map for each row; of a vector, one.
absl::Status RunZipMap(ValueContext& context) {
  const Tensor& x = context.InputTensor(0);
  const Tensor keys = LabelsOf(context.attributes());
  const int rank = x.shape().rank();
  const int64_t columns = rank > 0 ? x.shape().dim(rank - 1) : 1;
  if (rank < 1 || rank > 2 || columns != keys.num_elements()) {
    return context.InvalidArgument(absl::StrCat("X is ", x.shape().ToString(),
                                                ", expected one or two axes, the last as long as ",
                                                "there are labels, ", keys.num_elements()));
  }
  const int64_t rows = rank == 2 ? x.shape().dim(0) : 1;
  const std::span<const float> all = x.data<float>();
  std::vector<Value> maps;
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = all.begin() + row * columns;
    maps.push_back(Value::Sequence(
        {Tensor::Of<float>(Shape{columns}, std::vector<float>(first, first + columns)), keys}));
  }
  context.SetOutput(0, Value::Sequence(std::move(maps)));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("ai.onnx.ml", "ZipMap", RunZipMap);

}  // namespace
}  // namespace weft::cpu
