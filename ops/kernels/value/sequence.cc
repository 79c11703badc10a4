// Sequences and optionals.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/value/tensor_parts.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<const std::vector<Value>*> ElementsOf(const ValueContext& context, int i) {
  const Value& value = context.Input(i);
  if (value.kind() == ValueKind::kSequence) return &value.elements();
  return context.InvalidArgument(absl::StrCat("input ", i, " must be a sequence"));
}

// The position in input i, from the end when negative; `fallback` when it is omitted. At most
// `last`.
absl::StatusOr<int64_t> PositionOf(const ValueContext& context, int i, int64_t length, int64_t last,
                                   int64_t fallback) {
  if (!context.HasInput(i)) {
    if (fallback >= 0 && fallback <= last) return fallback;
    return context.InvalidArgument("the sequence is empty");
  }
  const Tensor& tensor = context.InputTensor(i);
  if (tensor.num_elements() != 1) {
    return context.InvalidArgument(
        absl::StrCat("the position must be one number, not ", tensor.num_elements()));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> given, ToInt64s(tensor));
  const int64_t position = given[0] < 0 ? given[0] + length : given[0];
  if (given[0] < -length || position > last) {
    return context.InvalidArgument(
        absl::StrCat("position ", given[0], " is outside of a sequence of ", length, " elements"));
  }
  return position;
}

absl::Status RunSequenceConstruct(ValueContext& context) {
  std::vector<Value> elements;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) {
      return context.InvalidArgument(absl::StrCat("input ", i, " is missing"));
    }
    if (context.InputTensor(i).dtype() != context.InputTensor(0).dtype()) {
      return context.InvalidArgument(absl::StrCat("input ", i, " has another dtype than input 0"));
    }
    elements.push_back(context.Input(i));
  }
  context.SetOutput(0, Value::Sequence(std::move(elements)));
  return absl::OkStatus();
}

absl::Status RunSequenceEmpty(ValueContext& context) {
  context.SetOutput(0, Value::Sequence({}));
  return absl::OkStatus();
}

absl::Status RunSequenceAt(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* elements, ElementsOf(context, 0));
  const auto length = static_cast<int64_t>(elements->size());
  WEFT_ASSIGN_OR_RETURN(const int64_t position, PositionOf(context, 1, length, length - 1, -1));
  context.SetOutput(0, (*elements)[static_cast<size_t>(position)]);
  return absl::OkStatus();
}

absl::Status RunSequenceInsert(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* elements, ElementsOf(context, 0));
  const auto length = static_cast<int64_t>(elements->size());
  WEFT_ASSIGN_OR_RETURN(const int64_t position, PositionOf(context, 2, length, length, length));
  std::vector<Value> longer;
  longer.reserve(elements->size() + 1);
  longer.insert(longer.end(), elements->begin(), elements->begin() + position);
  longer.push_back(context.Input(1));
  longer.insert(longer.end(), elements->begin() + position, elements->end());
  context.SetOutput(0, Value::Sequence(std::move(longer)));
  return absl::OkStatus();
}

absl::Status RunSequenceErase(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* elements, ElementsOf(context, 0));
  const auto length = static_cast<int64_t>(elements->size());
  WEFT_ASSIGN_OR_RETURN(const int64_t position,
                        PositionOf(context, 1, length, length - 1, length - 1));
  std::vector<Value> shorter = *elements;
  shorter.erase(shorter.begin() + position);
  context.SetOutput(0, Value::Sequence(std::move(shorter)));
  return absl::OkStatus();
}

absl::Status RunSequenceLength(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* elements, ElementsOf(context, 0));
  context.SetOutput(0, Tensor::Scalar<int64_t>(static_cast<int64_t>(elements->size())));
  return absl::OkStatus();
}

// The sizes of the parts of an axis of `whole`: given, or all of one size (the last what remains).
absl::StatusOr<std::vector<int64_t>> PartSizes(const ValueContext& context, int64_t whole) {
  if (!context.HasInput(1)) return std::vector<int64_t>(static_cast<size_t>(whole), 1);
  const Tensor& split = context.InputTensor(1);
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, ToInt64s(split));
  if (split.shape().rank() > 1) return context.InvalidArgument("split must be a number or a list");
  if (split.shape().rank() == 0) {
    const int64_t size = sizes[0];
    if (size <= 0) {
      return context.InvalidArgument(absl::StrCat("split is ", size, ", expected at least 1"));
    }
    sizes.assign(static_cast<size_t>(whole / size + (whole % size != 0 ? 1 : 0)), size);
    if (!sizes.empty()) sizes.back() = whole - size * static_cast<int64_t>(sizes.size() - 1);
    return sizes;
  }
  int64_t left = whole;
  for (const int64_t size : sizes) {
    if (size < 0 || size > left) {
      return context.InvalidArgument(
          absl::StrCat("the sizes in split do not add up to the axis, which has ", whole));
    }
    left -= size;
  }
  if (left == 0) return sizes;
  return context.InvalidArgument(
      absl::StrCat("the sizes in split add up to ", whole - left, ", but the axis has ", whole));
}

absl::Status RunSplitToSequence(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const int64_t given = context.attributes().Int("axis", 0);
  const absl::StatusOr<int> axis = NormalizeAxis(given, input.shape().rank());
  if (!axis.ok()) return context.InvalidArgument(absl::StrCat("there is no axis ", given));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                        PartSizes(context, input.shape().dim(*axis)));
  const bool drops = !context.HasInput(1) && context.attributes().Int("keepdims", 1) == 0;
  std::vector<Value> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    absl::StatusOr<Tensor> part =
        drops ? TakeAt(input, *axis, begin) : TakeRange(input, *axis, begin, begin + size);
    WEFT_RETURN_IF_ERROR(part.status());
    parts.emplace_back(*std::move(part));
    begin += size;
  }
  context.SetOutput(0, Value::Sequence(std::move(parts)));
  return absl::OkStatus();
}

absl::Status RunConcatFromSequence(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* elements, ElementsOf(context, 0));
  if (elements->empty()) return context.InvalidArgument("the sequence is empty");
  std::vector<Tensor> parts;
  for (const Value& element : *elements) {
    if (element.kind() != ValueKind::kTensor) {
      return context.InvalidArgument("an element is no tensor");
    }
    parts.push_back(element.tensor());
  }
  const bool new_axis = context.attributes().Int("new_axis", 0) != 0;
  const int64_t given = context.attributes().Int("axis", 0);
  const int rank = parts[0].shape().rank() + (new_axis ? 1 : 0);
  const absl::StatusOr<int> axis = NormalizeAxis(given, rank);
  if (!axis.ok()) return context.InvalidArgument(absl::StrCat("there is no axis ", given));
  const bool equal = std::all_of(parts.begin(), parts.end(), [&parts](const Tensor& part) {
    return part.shape() == parts[0].shape();
  });
  if (new_axis && !equal) {
    return context.InvalidArgument("the elements have different shapes, so none can be stacked");
  }
  absl::StatusOr<Tensor> joined = new_axis ? Stack(parts, *axis) : Join(parts, *axis);
  if (!joined.ok()) return context.InvalidArgument(std::string(joined.status().message()));
  context.SetOutput(0, *std::move(joined));
  return absl::OkStatus();
}

// ---- Gradients.

absl::Status RunSequenceSpread(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* like, ElementsOf(context, 1));
  const auto length = static_cast<int64_t>(like->size());
  WEFT_ASSIGN_OR_RETURN(const int64_t position, PositionOf(context, 2, length, length - 1, -1));
  std::vector<Value> elements;
  elements.reserve(like->size());
  for (int64_t i = 0; i < length; ++i) {
    if (i == position) {
      elements.push_back(context.Input(0));
      continue;
    }
    const Value& other = (*like)[static_cast<size_t>(i)];
    if (other.kind() != ValueKind::kTensor) {
      return context.InvalidArgument("an element of the sequence is no tensor");
    }
    WEFT_ASSIGN_OR_RETURN(Tensor zeros,
                          Tensor::Zeros(context.InputTensor(0).dtype(), other.tensor().shape()));
    elements.emplace_back(std::move(zeros));
  }
  context.SetOutput(0, Value::Sequence(std::move(elements)));
  return absl::OkStatus();
}

absl::Status RunSequenceSplit(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto* like, ElementsOf(context, 1));
  const Tensor& whole = context.InputTensor(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), whole.shape().rank()));
  std::vector<Value> parts;
  int64_t begin = 0;
  for (const Value& element : *like) {
    const bool fits = element.kind() == ValueKind::kTensor &&
                      element.tensor().shape().rank() == whole.shape().rank();
    const int64_t size = fits ? element.tensor().shape().dim(axis) : 0;
    if (!fits || begin + size > whole.shape().dim(axis)) {
      return context.InvalidArgument("the elements of the sequence do not make up the whole");
    }
    WEFT_ASSIGN_OR_RETURN(Tensor part, TakeRange(whole, axis, begin, begin + size));
    parts.emplace_back(std::move(part));
    begin += size;
  }
  context.SetOutput(0, Value::Sequence(std::move(parts)));
  return absl::OkStatus();
}

template <typename T>
void AddTo(Tensor& sum, const Tensor& tensor) {
  const auto to = sum.mutable_data<T>();
  const auto from = tensor.data<T>();
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// In the type of the first; halves are added in float32.
absl::StatusOr<Tensor> SumOf(const ValueContext& context, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape()) || !IsFloatingPoint(a.dtype())) {
    return context.InvalidArgument("elements at the same place have different types or shapes");
  }
  const bool wide = a.dtype() == DType::kFloat64;
  const DType dtype = wide ? DType::kFloat64 : DType::kFloat32;
  WEFT_ASSIGN_OR_RETURN(const Tensor first, CastTensor(a, dtype));
  WEFT_ASSIGN_OR_RETURN(Tensor sum, first.Clone());
  WEFT_ASSIGN_OR_RETURN(const Tensor other, CastTensor(b, dtype));
  if (wide) {
    AddTo<double>(sum, other);
  } else {
    AddTo<float>(sum, other);
  }
  return CastTensor(sum, a.dtype());
}

absl::StatusOr<Value> SumOfValues(const ValueContext& context, const Value& a, const Value& b) {
  if (a.kind() == ValueKind::kTensor && b.kind() == ValueKind::kTensor) {
    WEFT_ASSIGN_OR_RETURN(Tensor sum, SumOf(context, a.tensor(), b.tensor()));
    return Value(std::move(sum));
  }
  if (a.kind() == ValueKind::kSequence && b.kind() == ValueKind::kSequence &&
      a.elements().size() == b.elements().size()) {
    std::vector<Value> sums;
    for (size_t i = 0; i < a.elements().size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Value sum, SumOfValues(context, a.elements()[i], b.elements()[i]));
      sums.push_back(std::move(sum));
    }
    return Value::Sequence(std::move(sums));
  }
  if (a.kind() == ValueKind::kOptional && b.kind() == ValueKind::kOptional) {
    if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
    WEFT_ASSIGN_OR_RETURN(Value sum, SumOfValues(context, a.value(), b.value()));
    return Value::Optional(std::make_shared<const Value>(std::move(sum)));
  }
  return context.InvalidArgument("the operands differ in kind or length");
}

absl::Status RunSequenceSum(ValueContext& context) {
  Value sum = context.Input(0);
  for (int i = 1; i < context.num_inputs(); ++i) {
    WEFT_ASSIGN_OR_RETURN(sum, SumOfValues(context, sum, context.Input(i)));
  }
  context.SetOutput(0, std::move(sum));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("ai.weft", "SequenceSpread", RunSequenceSpread);
WEFT_REGISTER_VALUE_KERNEL("ai.weft", "SequenceSplit", RunSequenceSplit);
WEFT_REGISTER_VALUE_KERNEL("ai.weft", "SequenceSum", RunSequenceSum);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceConstruct", RunSequenceConstruct);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceEmpty", RunSequenceEmpty);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceAt", RunSequenceAt);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceInsert", RunSequenceInsert);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceErase", RunSequenceErase);
WEFT_REGISTER_VALUE_KERNEL("", "SequenceLength", RunSequenceLength);
WEFT_REGISTER_VALUE_KERNEL("", "SplitToSequence", RunSplitToSequence);
WEFT_REGISTER_VALUE_KERNEL("", "ConcatFromSequence", RunConcatFromSequence);

// ---- Optionals

absl::Status RunOptional(ValueContext& context) {
  std::shared_ptr<const Value> element;
  if (context.HasInput(0)) element = std::make_shared<const Value>(context.Input(0));
  context.SetOutput(0, Value::Optional(std::move(element)));
  return absl::OkStatus();
}

absl::Status RunOptionalHasElement(ValueContext& context) {
  const bool has = context.HasInput(0) && (context.Input(0).kind() != ValueKind::kOptional ||
                                           context.Input(0).has_value());
  context.SetOutput(0, Tensor::Scalar<bool>(has));
  return absl::OkStatus();
}

absl::Status RunOptionalGetElement(ValueContext& context) {
  const Value& input = context.Input(0);
  if (input.kind() == ValueKind::kOptional && !input.has_value()) {
    return context.InvalidArgument("the optional is empty");
  }
  context.SetOutput(0, input.kind() == ValueKind::kOptional ? input.value() : input);
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Optional", RunOptional);
WEFT_REGISTER_VALUE_KERNEL("", "OptionalHasElement", RunOptionalHasElement);
WEFT_REGISTER_VALUE_KERNEL("", "OptionalGetElement", RunOptionalGetElement);

}  // namespace
}  // namespace weft::cpu
