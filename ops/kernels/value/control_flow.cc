// If, Loop, Scan and SequenceMap.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_bodies.h"
#include "ops/axes.h"
#include "ops/kernels/value/tensor_parts.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft::cpu {
namespace {

// What a loop may hold: three quarters of what the process may allocate.
int64_t MemoryLimit() { return static_cast<int64_t>(CpuDevice().info().memory_limit / 4 * 3); }

// With what the objects themselves take, so that endless empty ones count too.
int64_t BytesOf(const Value& value) {
  int64_t bytes = static_cast<int64_t>(sizeof(Value));
  if (value.kind() != ValueKind::kTensor) {
    for (const Value& element : value.elements()) bytes += BytesOf(element);
    return bytes;
  }
  const Tensor& tensor = value.tensor();
  if (tensor.dtype() == DType::kString) {
    for (const std::string& text : tensor.strings()) {
      bytes += static_cast<int64_t>(sizeof(text) + text.size());
    }
    return bytes;
  }
  return bytes + (tensor.valid() ? static_cast<int64_t>(tensor.bytes()) : 0);
}

// The value of a tensor of one element of this dtype; nothing when it is something else.
template <typename T>
std::optional<T> ScalarOf(const Value& value) {
  if (value.kind() != ValueKind::kTensor || !value.tensor().valid()) return std::nullopt;
  const Tensor& tensor = value.tensor();
  if (tensor.dtype() != DTypeOf<T>::value || tensor.num_elements() != 1) return std::nullopt;
  return tensor.data<T>()[0];
}

// A body of the node, run with what it captures behind its own inputs.
class BodyCall {
 public:
  static absl::StatusOr<BodyCall> Create(ValueContext& context, const std::string& name) {
    for (const NodeBody& body : BodiesOf(context.node())) {
      if (body.name == name) return BodyCall(context, body);
    }
    return context.InvalidArgument(absl::StrCat("it has no body '", name, "'"));
  }

  int num_inputs() const { return body_.num_inputs(); }
  int num_outputs() const { return static_cast<int>(body_.graph->outputs().size()); }
  // The type that the file or inference gives to an output.
  const ValueType& OutputType(int i) const {
    return body_.graph->value(body_.graph->outputs()[static_cast<size_t>(i)]).type;
  }

  absl::StatusOr<std::vector<Value>> Run(std::vector<Value> inputs) {
    for (int i = 0; i < body_.captures; ++i) {
      const int input = body_.first_capture + i;
      if (!context_->HasInput(input)) {
        return context_->InvalidArgument(absl::StrCat("input ", input, ", a capture, is missing"));
      }
      inputs.push_back(context_->Input(input));
    }
    return context_->RunBody(body_.name, std::move(inputs));
  }

  absl::Status CheckInputs(int expected) const {
    if (num_inputs() == expected) return absl::OkStatus();
    return context_->InvalidArgument(absl::StrCat("its body '", body_.name, "' has ", num_inputs(),
                                                  " inputs, expected ", expected));
  }
  absl::Status CheckOutputs(int min_outputs) const {
    if (num_outputs() >= min_outputs) return absl::OkStatus();
    return context_->InvalidArgument(absl::StrCat("its body '", body_.name, "' has ", num_outputs(),
                                                  " outputs, expected at least ", min_outputs));
  }

 private:
  BodyCall(ValueContext& context, const NodeBody& body) : context_(&context), body_(body) {}

  ValueContext* context_;
  NodeBody body_;
};

// ---- If

absl::Status RunIf(ValueContext& context) {
  const std::optional<bool> condition = ScalarOf<bool>(context.Input(0));
  if (!condition.has_value()) {
    return context.InvalidArgument("the condition must be one boolean");
  }
  WEFT_ASSIGN_OR_RETURN(BodyCall body,
                        BodyCall::Create(context, *condition ? "then_branch" : "else_branch"));
  WEFT_RETURN_IF_ERROR(body.CheckInputs(0));
  WEFT_RETURN_IF_ERROR(body.CheckOutputs(context.num_outputs()));
  WEFT_ASSIGN_OR_RETURN(std::vector<Value> results, body.Run({}));
  for (int i = 0; i < context.num_outputs(); ++i) context.SetOutput(i, std::move(results[i]));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "If", RunIf);

// ---- What Loop and Scan collect

// The values that a body's output had, round by round.
class Collected {
 public:
  absl::Status Add(ValueContext& context, int output, Value value) {
    if (value.kind() != ValueKind::kTensor) {
      return context.InvalidArgument(
          absl::StrCat("scan output ", output, " is no tensor, so it cannot be stacked"));
    }
    bytes_ += BytesOf(value);
    tensors_.push_back(value.tensor());
    return absl::OkStatus();
  }
  int64_t bytes() const { return bytes_; }
  void Reverse() { std::reverse(tensors_.begin(), tensors_.end()); }

  // Stacked along a new axis. Without any, what is known of the type decides; unknown sizes are 0.
  absl::StatusOr<Tensor> Stacked(ValueContext& context, int output, int64_t axis,
                                 const ValueType& type) const {
    Shape element;
    if (!tensors_.empty()) {
      element = tensors_.front().shape();
    } else if (type.shape.has_rank()) {
      for (const Dim& dim : type.shape.dims()) element.AddDim(dim.is_known() ? dim.size() : 0);
    }
    const absl::StatusOr<int> at = NormalizeAxis(axis, element.rank() + 1);
    if (!at.ok()) {
      return context.InvalidArgument(absl::StrCat("scan output ", output, " of shape ",
                                                  element.ToString(), " cannot be stacked on axis ",
                                                  axis));
    }
    if (!tensors_.empty()) {
      absl::StatusOr<Tensor> stacked = Stack(tensors_, *at);
      if (stacked.ok()) return stacked;
      return absl::Status(stacked.status().code(),
                          absl::StrCat("scan output ", output, ": ", stacked.status().message()));
    }
    const DType dtype = type.dtype == DType::kInvalid ? DType::kFloat32 : type.dtype;
    return EmptyTensor(dtype, WithAxis(element, *at, 0));
  }

 private:
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
};

absl::Status CheckMemory(const std::vector<Collected>& collected, const std::vector<Value>& carried,
                         int64_t round) {
  int64_t bytes = 0;
  for (const Collected& one : collected) bytes += one.bytes();
  for (const Value& value : carried) bytes += BytesOf(value);
  if (bytes <= MemoryLimit()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("after ", round, " rounds, what it carries and ",
                                                   "collects takes ", bytes,
                                                   " bytes; the limit is ", MemoryLimit()));
}

// ---- Loop

// How a loop ends: after `rounds` (if bound), or when the condition is false.
struct LoopEnd {
  std::optional<int64_t> rounds;
  bool condition = true;
  bool Reached(int64_t round) const {
    return !condition || (rounds.has_value() && round >= *rounds);
  }
};

absl::StatusOr<LoopEnd> EndOf(ValueContext& context, int own) {
  LoopEnd end;
  if (own > 0 && context.HasInput(0)) {
    end.rounds = ScalarOf<int64_t>(context.Input(0));
    if (!end.rounds.has_value()) return context.InvalidArgument("M must be one int64");
  }
  if (own > 1 && context.HasInput(1)) {
    const std::optional<bool> condition = ScalarOf<bool>(context.Input(1));
    if (!condition.has_value()) return context.InvalidArgument("cond must be one boolean");
    end.condition = *condition;
  }
  return end;
}

absl::Status RunLoop(ValueContext& context) {
  const int own = NumOwnInputs(context.node());
  WEFT_ASSIGN_OR_RETURN(LoopEnd end, EndOf(context, own));
  WEFT_ASSIGN_OR_RETURN(BodyCall body, BodyCall::Create(context, "body"));
  std::vector<Value> carried;
  for (int i = 2; i < own; ++i) {
    if (!context.HasInput(i)) {
      return context.InvalidArgument(absl::StrCat("input ", i, " is missing"));
    }
    carried.push_back(context.Input(i));
  }
  const int count = static_cast<int>(carried.size());
  WEFT_RETURN_IF_ERROR(body.CheckInputs(2 + count));
  WEFT_RETURN_IF_ERROR(body.CheckOutputs(1 + std::max(count, context.num_outputs())));
  std::vector<Collected> collected(static_cast<size_t>(body.num_outputs() - 1 - count));
  for (int64_t round = 0; !end.Reached(round); ++round) {
    std::vector<Value> inputs = {Tensor::Scalar<int64_t>(round),
                                 Tensor::Scalar<bool>(end.condition)};
    inputs.insert(inputs.end(), std::make_move_iterator(carried.begin()),
                  std::make_move_iterator(carried.end()));
    WEFT_ASSIGN_OR_RETURN(std::vector<Value> results, body.Run(std::move(inputs)));
    const std::optional<bool> condition = ScalarOf<bool>(results[0]);
    if (!condition.has_value()) {
      return context.InvalidArgument("the first output of its body must be one boolean");
    }
    end.condition = *condition;
    for (int i = 0; i < count; ++i) carried[i] = std::move(results[1 + i]);
    for (size_t i = 0; i < collected.size(); ++i) {
      const int output = count + static_cast<int>(i);
      WEFT_RETURN_IF_ERROR(collected[i].Add(context, output, std::move(results[1 + output])));
    }
    WEFT_RETURN_IF_ERROR(CheckMemory(collected, carried, round + 1));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (!context.HasOutput(i)) continue;
    if (i < count) {
      context.SetOutput(i, std::move(carried[i]));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(Tensor stacked, collected[static_cast<size_t>(i - count)].Stacked(
                                              context, i, 0, body.OutputType(1 + i)));
    context.SetOutput(i, std::move(stacked));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Loop", RunLoop);

// ---- Scan

struct ScanSpec {
  int states = 0;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

// One scan over `inputs`: states, then scan inputs. `length` rounds, or as many as the scan inputs
// have when negative. Returns final states, then stacked outputs.
absl::StatusOr<std::vector<Value>> Scan(ValueContext& context, BodyCall& body,
                                        std::vector<Value> inputs, const ScanSpec& spec,
                                        int64_t length) {
  const size_t states = static_cast<size_t>(spec.states);
  std::vector<int> axes;
  for (size_t i = states; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].tensor().shape();
    const int64_t given = NumberAt(spec.input_axes, i - states);
    const absl::StatusOr<int> axis = NormalizeAxis(given, shape.rank());
    if (!axis.ok()) {
      return context.InvalidArgument(
          absl::StrCat("scan input ", i, " of shape ", shape.ToString(), " has no axis ", given));
    }
    axes.push_back(*axis);
    if (length < 0) length = shape.dim(*axis);
    if (shape.dim(*axis) < length ||
        (i > states && shape.dim(*axis) != inputs[states].tensor().shape().dim(axes[0]))) {
      return context.InvalidArgument(absl::StrCat("scan input ", i, " of shape ", shape.ToString(),
                                                  " has ", shape.dim(*axis), " parts on axis ",
                                                  *axis, ", expected ", length));
    }
  }
  std::vector<Value> carried(inputs.begin(), inputs.begin() + spec.states);
  std::vector<Collected> collected(static_cast<size_t>(body.num_outputs()) - states);
  for (int64_t round = 0; round < length; ++round) {
    std::vector<Value> given = std::move(carried);
    for (size_t i = states; i < inputs.size(); ++i) {
      const bool backward = NumberAt(spec.input_directions, i - states) == 1;
      WEFT_ASSIGN_OR_RETURN(Tensor part, TakeAt(inputs[i].tensor(), axes[i - states],
                                                backward ? length - 1 - round : round));
      given.emplace_back(std::move(part));
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<Value> results, body.Run(std::move(given)));
    carried.assign(std::make_move_iterator(results.begin()),
                   std::make_move_iterator(results.begin() + spec.states));
    for (size_t i = 0; i < collected.size(); ++i) {
      WEFT_RETURN_IF_ERROR(
          collected[i].Add(context, static_cast<int>(states + i), std::move(results[states + i])));
    }
    WEFT_RETURN_IF_ERROR(CheckMemory(collected, carried, round + 1));
  }
  for (size_t i = 0; i < collected.size(); ++i) {
    if (NumberAt(spec.output_directions, i) == 1) collected[i].Reverse();
    const int output = static_cast<int>(states + i);
    WEFT_ASSIGN_OR_RETURN(Tensor stacked,
                          collected[i].Stacked(context, output, NumberAt(spec.output_axes, i),
                                               body.OutputType(output)));
    carried.emplace_back(std::move(stacked));
  }
  return carried;
}

// The inputs [first, own) of a scan, of which the last num_scan_inputs are scanned.
absl::StatusOr<std::vector<Value>> ScanInputs(ValueContext& context, BodyCall& body, int first,
                                              ScanSpec& spec) {
  std::vector<Value> inputs;
  const int own = NumOwnInputs(context.node());
  const int64_t scanned = context.attributes().Int("num_scan_inputs", 0);
  if (scanned < 1 || scanned > own - first) {
    return context.InvalidArgument(
        absl::StrCat("attribute num_scan_inputs is ", scanned, ", expected 1 to ", own - first));
  }
  spec.states = own - first - static_cast<int>(scanned);
  for (int i = first; i < own; ++i) {
    const bool is_state = i - first < spec.states;
    if (!context.HasInput(i) || (!is_state && context.Input(i).kind() != ValueKind::kTensor)) {
      return context.InvalidArgument(absl::StrCat("input ", i, " is missing or no tensor"));
    }
    inputs.push_back(context.Input(i));
  }
  WEFT_RETURN_IF_ERROR(body.CheckInputs(own - first));
  WEFT_RETURN_IF_ERROR(body.CheckOutputs(std::max(spec.states, context.num_outputs())));
  return inputs;
}

absl::Status RunScan(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(BodyCall body, BodyCall::Create(context, "body"));
  ScanSpec spec;
  WEFT_ASSIGN_OR_RETURN(std::vector<Value> inputs, ScanInputs(context, body, 0, spec));
  spec.input_axes = context.attributes().Ints("scan_input_axes");
  spec.input_directions = context.attributes().Ints("scan_input_directions");
  spec.output_axes = context.attributes().Ints("scan_output_axes");
  spec.output_directions = context.attributes().Ints("scan_output_directions");
  WEFT_ASSIGN_OR_RETURN(std::vector<Value> results,
                        Scan(context, body, std::move(inputs), spec, -1));
  for (int i = 0; i < context.num_outputs(); ++i) context.SetOutput(i, std::move(results[i]));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Scan", RunScan);

// Zeros behind the last part of axis 0, up to `length`.
absl::StatusOr<Tensor> Padded(const Tensor& tensor, int64_t length) {
  if (tensor.shape().rank() == 0 || tensor.shape().dim(0) == length) return tensor;
  Shape rest = tensor.shape();
  rest.set_dim(0, length - tensor.shape().dim(0));
  WEFT_ASSIGN_OR_RETURN(Tensor zeros, EmptyTensor(tensor.dtype(), rest));
  return Join({tensor, zeros}, 0);
}

// The batch axis 0 of every input is taken apart; each sample is a scan of its own.
absl::Status RunBatchedScan(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(BodyCall body, BodyCall::Create(context, "body"));
  ScanSpec spec;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Value> inputs, ScanInputs(context, body, 1, spec));
  spec.input_directions = context.attributes().Ints("directions");
  const Shape& scanned = inputs[static_cast<size_t>(spec.states)].tensor().shape();
  if (scanned.rank() < 2) {
    return context.InvalidArgument("scan inputs need a batch axis and a sequence axis");
  }
  const int64_t batch = scanned.dim(0);
  const int64_t longest = scanned.dim(1);
  std::vector<int64_t> lengths(static_cast<size_t>(batch), longest);
  if (context.HasInput(0)) {
    const auto given = context.InputTensor(0).data<int64_t>();
    lengths.assign(given.begin(), given.end());
  }
  const auto is_length = [longest](int64_t length) { return length >= 0 && length <= longest; };
  if (static_cast<int64_t>(lengths.size()) != batch ||
      !std::all_of(lengths.begin(), lengths.end(), is_length)) {
    return context.InvalidArgument(
        absl::StrCat("sequence_lens must be ", batch, " lengths from 0 to ", longest));
  }
  std::vector<std::vector<Tensor>> outputs(static_cast<size_t>(body.num_outputs()));
  for (int64_t sample = 0; sample < batch; ++sample) {
    std::vector<Value> parts;
    for (const Value& input : inputs) {
      const bool fits = input.kind() == ValueKind::kTensor && input.tensor().shape().rank() > 0 &&
                        input.tensor().shape().dim(0) == batch;
      if (!fits) return context.InvalidArgument("every input needs the same batch axis 0");
      WEFT_ASSIGN_OR_RETURN(Tensor part, TakeAt(input.tensor(), 0, sample));
      parts.emplace_back(std::move(part));
    }
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<Value> results,
        Scan(context, body, std::move(parts), spec, lengths[static_cast<size_t>(sample)]));
    for (size_t i = 0; i < results.size(); ++i) {
      Tensor tensor = results[i].tensor();
      if (static_cast<int>(i) >= spec.states) {
        WEFT_ASSIGN_OR_RETURN(tensor, Padded(tensor, longest));
      }
      outputs[i].push_back(std::move(tensor));
    }
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    const std::vector<Tensor>& samples = outputs[static_cast<size_t>(i)];
    if (samples.empty()) return context.InvalidArgument("the batch is empty");
    WEFT_ASSIGN_OR_RETURN(Tensor stacked, Stack(samples, 0));
    context.SetOutput(i, std::move(stacked));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("ai.weft", "BatchedScan", RunBatchedScan);

// ---- SequenceMap

absl::Status RunSequenceMap(ValueContext& context) {
  const int own = NumOwnInputs(context.node());
  WEFT_ASSIGN_OR_RETURN(BodyCall body, BodyCall::Create(context, "body"));
  WEFT_RETURN_IF_ERROR(body.CheckInputs(own));
  WEFT_RETURN_IF_ERROR(body.CheckOutputs(context.num_outputs()));
  if (own < 1 || context.Input(0).kind() != ValueKind::kSequence) {
    return context.InvalidArgument("input 0 must be a sequence");
  }
  const size_t length = context.Input(0).elements().size();
  std::vector<std::vector<Value>> made(static_cast<size_t>(context.num_outputs()));
  for (size_t round = 0; round < length; ++round) {
    std::vector<Value> inputs;
    for (int i = 0; i < own; ++i) {
      const Value& input = context.Input(i);
      if (input.kind() == ValueKind::kSequence && input.elements().size() != length) {
        return context.InvalidArgument(absl::StrCat("input ", i, " has ", input.elements().size(),
                                                    " elements, expected as many as input 0 has, ",
                                                    length));
      }
      inputs.push_back(input.kind() == ValueKind::kSequence ? input.elements()[round] : input);
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<Value> results, body.Run(std::move(inputs)));
    for (size_t i = 0; i < made.size(); ++i) made[i].push_back(std::move(results[i]));
  }
  for (size_t i = 0; i < made.size(); ++i) {
    context.SetOutput(static_cast<int>(i), Value::Sequence(std::move(made[i])));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "SequenceMap", RunSequenceMap);

}  // namespace
}  // namespace weft::cpu
