// LabelEncoder, CategoryMapper and OneHotEncoder of ai.onnx.ml: elements looked up in tables, which
// may hold strings.
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// From an element to its place in a list of keys. The first of equal keys counts; NaN is itself.
class KeyTable {
 public:
  static absl::StatusOr<KeyTable> Of(const Tensor& keys) {
    KeyTable table;
    if (keys.dtype() == DType::kString) {
      int64_t place = 0;
      for (const std::string& key : keys.strings()) table.strings_.emplace(key, place++);
      return table;
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Number> numbers, NumbersOf(keys));
    for (size_t i = 0; i < numbers.size(); ++i) {
      table.numbers_.emplace(numbers[i], static_cast<int64_t>(i));
    }
    return table;
  }

  // Per element of `x` the place of the equal key, or -1. The types must both be strings or both
  // not.
  absl::StatusOr<std::vector<int64_t>> Find(const Tensor& x) const {
    std::vector<int64_t> places;
    if (x.dtype() == DType::kString) {
      for (const std::string& element : x.strings()) {
        const auto found = strings_.find(element);
        places.push_back(found == strings_.end() ? -1 : found->second);
      }
      return places;
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Number> numbers, NumbersOf(x));
    for (const Number& number : numbers) {
      const auto found = numbers_.find(number);
      places.push_back(found == numbers_.end() ? -1 : found->second);
    }
    return places;
  }

 private:
  // Integers exactly, others as double; NaN is less than all.
  struct Number {
    bool nan = false;
    double real = 0;
    int64_t whole = 0;
    bool operator<(const Number& other) const {
      if (nan || other.nan) return nan && !other.nan;
      return real != other.real ? real < other.real : whole < other.whole;
    }
  };

  static absl::StatusOr<std::vector<Number>> NumbersOf(const Tensor& tensor) {
    std::vector<Number> numbers;
    if (IsInteger(tensor.dtype())) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> whole, ToInt64s(tensor));
      for (const int64_t n : whole) numbers.push_back({false, static_cast<double>(n), n});
      return numbers;
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> reals, ToDoubles(tensor));
    for (const double real : reals) {
      // Whole reals equal integers.
      const bool fits = std::abs(real) < 9e18 && std::trunc(real) == real;
      numbers.push_back(
          {std::isnan(real), std::isnan(real) ? 0 : real, fits ? static_cast<int64_t>(real) : 0});
    }
    return numbers;
  }

  std::map<std::string, int64_t> strings_;
  std::map<Number, int64_t> numbers_;
};

// The list in attribute `stem`_tensor, _strings, _int64s or _floats; an invalid tensor when there
// is none.
Tensor ListOf(const Attributes& attributes, const std::string& stem) {
  const Attribute* tensor = attributes.Find(stem + "_tensor");
  if (tensor != nullptr && std::holds_alternative<Tensor>(*tensor)) {
    return std::get<Tensor>(*tensor);
  }
  const auto shape = [](size_t size) { return Shape{static_cast<int64_t>(size)}; };
  if (attributes.Has(stem + "_strings")) {
    const std::vector<std::string> strings = attributes.Strings(stem + "_strings");
    return Tensor::OfStrings(shape(strings.size()), strings);
  }
  if (attributes.Has(stem + "_int64s")) {
    const std::vector<int64_t> ints = attributes.Ints(stem + "_int64s");
    return Tensor::Of<int64_t>(shape(ints.size()), ints);
  }
  if (attributes.Has(stem + "_floats")) {
    const std::vector<float> floats = attributes.Floats(stem + "_floats");
    return Tensor::Of<float>(shape(floats.size()), floats);
  }
  return Tensor();
}

// values[place] for each place, `fallback` (one element) where that is -1.
absl::StatusOr<Tensor> Chosen(const Tensor& values, const std::vector<int64_t>& places,
                              const Tensor& fallback, const Shape& shape) {
  if (values.dtype() == DType::kString) {
    std::vector<std::string> strings;
    for (const int64_t place : places) {
      strings.push_back(place < 0 ? fallback.strings()[0] : values.strings()[place]);
    }
    return Tensor::OfStrings(shape, std::move(strings));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor out, Tensor::Allocate(values.dtype(), shape));
  const size_t width = DTypeBits(values.dtype()) / 8;
  for (size_t i = 0; i < places.size(); ++i) {
    const char* from = places[i] < 0
                           ? static_cast<const char*>(fallback.raw_data())
                           : static_cast<const char*>(values.raw_data()) + places[i] * width;
    std::copy(from, from + width, static_cast<char*>(out.raw_data()) + i * width);
  }
  return out;
}

Tensor LabelFallback(const Attributes& attributes, DType dtype) {
  const Attribute* tensor = attributes.Find("default_tensor");
  if (tensor != nullptr && std::holds_alternative<Tensor>(*tensor)) {
    return std::get<Tensor>(*tensor);
  }
  if (dtype == DType::kString) {
    return Tensor::OfStrings(Shape{1}, {attributes.String("default_string", "_Unused")});
  }
  if (IsInteger(dtype)) return Tensor::Scalar<int64_t>(attributes.Int("default_int64", -1));
  return Tensor::Scalar<float>(attributes.Float("default_float", -0.0f));
}

// The form of version 1: the strings' places are their numbers.
void ReadClasses(const std::vector<std::string>& classes, Tensor& strings, Tensor& numbers) {
  const Shape shape{static_cast<int64_t>(classes.size())};
  std::vector<int64_t> places(classes.size());
  std::iota(places.begin(), places.end(), 0);
  strings = Tensor::OfStrings(shape, classes);
  numbers = Tensor::Of<int64_t>(shape, places);
}

absl::Status RunLabelEncoder(ValueContext& context) {
  const Attributes& attributes = context.attributes();
  const Tensor& x = context.InputTensor(0);
  Tensor keys = ListOf(attributes, "keys");
  Tensor values = ListOf(attributes, "values");
  if (attributes.Has("classes_strings")) {
    ReadClasses(attributes.Strings("classes_strings"), keys, values);
    if (x.dtype() != DType::kString) std::swap(keys, values);
  }
  if (!keys.valid() || !values.valid() || keys.num_elements() != values.num_elements()) {
    return context.InvalidArgument(
        "the attributes keys_* and values_* must be given and equally long");
  }
  if ((keys.dtype() == DType::kString) != (x.dtype() == DType::kString)) {
    return context.InvalidArgument(
        absl::StrCat("the keys are ", std::string(DTypeName(keys.dtype())), ", the input is ",
                     std::string(DTypeName(x.dtype()))));
  }
  Tensor fallback = LabelFallback(attributes, values.dtype());
  if (fallback.num_elements() != 1) {
    return context.InvalidArgument("attribute default_tensor must hold one element");
  }
  if (fallback.dtype() != values.dtype()) {
    WEFT_ASSIGN_OR_RETURN(fallback, CastTensor(fallback, values.dtype()));
  }
  WEFT_ASSIGN_OR_RETURN(const KeyTable table, KeyTable::Of(keys));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> places, table.Find(x));
  WEFT_ASSIGN_OR_RETURN(Tensor y, Chosen(values, places, fallback, x.shape()));
  context.SetOutput(0, std::move(y));
  return absl::OkStatus();
}

absl::Status RunCategoryMapper(ValueContext& context) {
  const Attributes& attributes = context.attributes();
  const Tensor& x = context.InputTensor(0);
  const Tensor strings = ListOf(attributes, "cats");
  const std::vector<int64_t> ints = attributes.Ints("cats_int64s");
  const Tensor numbers = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(ints.size())}, ints);
  if (!strings.valid() || strings.dtype() != DType::kString ||
      strings.num_elements() != numbers.num_elements()) {
    return context.InvalidArgument(
        "the attributes cats_strings and cats_int64s must be given and equally long");
  }
  const bool from_strings = x.dtype() == DType::kString;
  const Tensor fallback =
      from_strings ? Tensor::Scalar<int64_t>(attributes.Int("default_int64", -1))
                   : Tensor::OfStrings(Shape{1}, {attributes.String("default_string", "_Unused")});
  WEFT_ASSIGN_OR_RETURN(const KeyTable table, KeyTable::Of(from_strings ? strings : numbers));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> places, table.Find(x));
  WEFT_ASSIGN_OR_RETURN(Tensor y,
                        Chosen(from_strings ? numbers : strings, places, fallback, x.shape()));
  context.SetOutput(0, std::move(y));
  return absl::OkStatus();
}

absl::Status RunOneHotEncoder(ValueContext& context) {
  Tensor x = context.InputTensor(0);
  const Tensor categories = ListOf(context.attributes(), "cats");
  if (!categories.valid() ||
      (categories.dtype() == DType::kString) != (x.dtype() == DType::kString)) {
    return context.InvalidArgument(
        "expected attribute cats_strings for strings, or cats_int64s for numbers");
  }
  if (IsFloatingPoint(x.dtype())) {
    WEFT_ASSIGN_OR_RETURN(x, CastTensor(x, DType::kInt64));
  }
  WEFT_ASSIGN_OR_RETURN(const KeyTable table, KeyTable::Of(categories));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> places, table.Find(x));
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims.push_back(categories.num_elements());
  WEFT_ASSIGN_OR_RETURN(Shape shape, Shape::Create(dims));
  WEFT_ASSIGN_OR_RETURN(Tensor y, Tensor::Zeros(DType::kFloat32, std::move(shape)));
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0) {
      y.mutable_data<float>()[i * dims.back() + places[i]] = 1;
    } else if (context.attributes().Int("zeros", 1) == 0) {
      return context.InvalidArgument(
          absl::StrCat("element ", i, " is none of the categories, which zeros=0 forbids"));
    }
  }
  context.SetOutput(0, std::move(y));
  return absl::OkStatus();
}

constexpr char kDomain[] = "ai.onnx.ml";
WEFT_REGISTER_VALUE_KERNEL(kDomain, "LabelEncoder", RunLabelEncoder);
WEFT_REGISTER_VALUE_KERNEL(kDomain, "CategoryMapper", RunCategoryMapper);
WEFT_REGISTER_VALUE_KERNEL(kDomain, "OneHotEncoder", RunOneHotEncoder);

}  // namespace
}  // namespace weft
