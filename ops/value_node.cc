#include "ops/value_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "graph/expansion.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "ops/element_codes.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kValueKernelDeadline = absl::Minutes(10);
// Kernels kept per node, and the operands of one that may be kept with it.
constexpr size_t kMaxPrepared = 8;
constexpr size_t kMaxKeptBytes = size_t{1} << 20;

std::string TypeText(const Value& value) {
  if (value.kind() != ValueKind::kTensor) {
    return value.kind() == ValueKind::kSequence ? "a sequence" : "an optional";
  }
  const Tensor& tensor = value.tensor();
  if (!tensor.valid()) return "-";
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

std::string Describe(const Node& node, const std::vector<Value>& inputs) {
  return absl::StrCat(
      "node '", node.name, "' (", node.schema != nullptr ? node.schema->FullName() : node.op,
      " of ",
      absl::StrJoin(inputs, ", ",
                    [](std::string* out, const Value& input) { out->append(TypeText(input)); }),
      ")");
}

// The error with the node in front, unless it is there.
absl::Status NameNode(const absl::Status& status, const Node& node,
                      const std::vector<Value>& inputs) {
  const absl::string_view message = status.message();
  const std::string start = absl::StrCat("node '", node.name, "'");
  if (message.substr(0, start.size()) == start) return status;
  return Annotate(status, Describe(node, inputs));
}

bool IsAbsent(const Value& value) {
  return value.kind() == ValueKind::kTensor && !value.tensor().valid();
}

bool AllTensors(const std::vector<Value>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](const Value& value) { return value.kind() == ValueKind::kTensor; });
}

std::vector<Tensor> TensorsOf(const std::vector<Value>& values) {
  std::vector<Tensor> tensors;
  tensors.reserve(values.size());
  for (const Value& value : values) tensors.push_back(value.tensor());
  return tensors;
}

std::vector<Value> ValuesOf(std::vector<Tensor> tensors) {
  return {std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())};
}

// Dtypes that codes stand for when a kernel does not know them.
bool IsExotic(DType dtype) {
  const bool number = dtype == DType::kInt8 || dtype == DType::kUint8 || dtype == DType::kBool ||
                      DTypeBits(dtype) == 16;
  return ElementCodes::CodeType(dtype) != DType::kInvalid && !number;
}

DType FirstExotic(const std::vector<Tensor>& inputs) {
  for (const Tensor& input : inputs) {
    if (input.valid() && IsExotic(input.dtype())) return input.dtype();
  }
  return DType::kInvalid;
}

class NodeValueContext final : public ValueContext {
 public:
  NodeValueContext(const Node& node, const ValueNode::Settings& settings, std::vector<Value> inputs)
      : node_(node),
        settings_(settings),
        inputs_(std::move(inputs)),
        outputs_(node.outputs.size()) {}

  const Node& node() const override { return node_; }
  const Value& Input(int i) const override { return inputs_[i]; }
  void SetOutput(int i, Value value) override {
    if (HasOutput(i)) outputs_[i] = std::move(value);
  }
  int threads() const override { return settings_.threads; }
  absl::StatusOr<std::vector<Value>> RunBody(const std::string& name,
                                             std::vector<Value> inputs) override {
    const Attribute* attribute = attributes().Find(name);
    const auto* body =
        attribute == nullptr ? nullptr : std::get_if<std::shared_ptr<Graph>>(attribute);
    if (body == nullptr || *body == nullptr) {
      return InvalidArgument(absl::StrCat("it has no body '", name, "'"));
    }
    if (settings_.bodies == nullptr) return Unimplemented("its bodies run only inside a program");
    if (inputs.size() != (*body)->inputs().size()) {
      return InvalidArgument(absl::StrCat("its body '", name, "' has ", (*body)->inputs().size(),
                                          " inputs and is given ", inputs.size(), " values"));
    }
    absl::StatusOr<std::vector<Value>> outputs =
        settings_.bodies->RunBody(**body, std::move(inputs));
    if (!outputs.ok()) {
      return Annotate(outputs.status(),
                      absl::StrCat("body '", name, "' of node '", node_.name, "'"));
    }
    return outputs;
  }

  absl::StatusOr<std::vector<Value>> TakeOutputs() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (node_.outputs[i].valid() && IsAbsent(outputs_[i])) {
        return absl::InternalError(absl::StrCat("its kernel made no output ", i));
      }
    }
    return std::move(outputs_);
  }

 private:
  const Node& node_;
  const ValueNode::Settings& settings_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
};

// The graph of the node alone, its inputs in their order.
std::shared_ptr<Graph> GraphOf(const Node& node) {
  auto graph = std::make_shared<Graph>();
  Graph::NodeSpec spec;
  spec.name = node.name;
  spec.domain = node.domain;
  spec.op = node.op;
  spec.attributes = node.attributes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    spec.inputs.push_back(node.inputs[i].valid()
                              ? graph->AddInput(absl::StrCat("input_", i), ValueType())
                              : kNoValue);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    spec.outputs.push_back(node.outputs[i].valid() ? absl::StrCat("output_", i) : "");
  }
  spec.keep_empty_outputs = true;
  const Node& added = graph->node(graph->AddNode(std::move(spec)));
  for (const ValueId output : added.outputs) {
    if (output.valid()) graph->AddOutput(output);
  }
  return graph;
}

}  // namespace

bool RunsOnValues(const Node& node) {
  if (ValueKernelRegistry::Global().Find(node.domain, node.op) != nullptr) return true;
  return node.schema != nullptr &&
         (node.schema->element_use() != ElementUse::kComputes || node.schema->expand() != nullptr);
}

bool ValueNode::HasKernel() const {
  const KernelRegistry& kernels =
      settings_.kernels != nullptr ? *settings_.kernels : KernelRegistry::Global();
  return !node_.schema->aliases().empty() ||
         kernels.Find(node_.domain, node_.op, DeviceKind::kCpu) != nullptr;
}

absl::Status ValueNode::CheckInputs(const std::vector<Value>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!node_.inputs[i].valid()) continue;
    const FormalParameter* formal = node_.schema->FormalInput(static_cast<int>(i));
    if (formal == nullptr) return absl::InvalidArgumentError("it has too many inputs");
    if (inputs[i].kind() != ValueKind::kTensor) {
      if (formal->any_kind) continue;
      return absl::InvalidArgumentError(absl::StrCat("input ", i, " ('", formal->name, "') is ",
                                                     TypeText(inputs[i]), ", expected a tensor"));
    }
    if (!inputs[i].tensor().valid()) {
      return absl::InternalError(absl::StrCat("input ", i, " has no value"));
    }
    const DType dtype = inputs[i].tensor().dtype();
    if (formal->dtypes.empty() ||
        std::find(formal->dtypes.begin(), formal->dtypes.end(), dtype) != formal->dtypes.end()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", i, " ('", formal->name, "') is ", std::string(DTypeName(dtype)),
        ", expected one of ", absl::StrJoin(formal->dtypes, ", ", [](std::string* out, DType type) {
          out->append(DTypeName(type));
        })));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> ValueNode::Run(std::vector<Value> inputs) {
  if (node_.schema == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(Describe(node_, inputs), ": the op is not known to the engine"));
  }
  if (inputs.size() != node_.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(node_, inputs), ": ", inputs.size(),
                                                   " values for ", node_.inputs.size(), " inputs"));
  }
  const absl::Status status = CheckInputs(inputs);
  if (!status.ok()) return NameNode(status, node_, inputs);
  const std::vector<Value> kept = inputs;
  absl::StatusOr<std::vector<Value>> outputs = RunChecked(std::move(inputs));
  if (!outputs.ok()) return NameNode(outputs.status(), node_, kept);
  return outputs;
}

absl::StatusOr<std::vector<Value>> ValueNode::RunChecked(std::vector<Value> inputs) {
  const ValueKernel* const kernel = ValueKernelRegistry::Global().Find(node_.domain, node_.op);
  absl::Status refusal = absl::UnimplementedError("there is no kernel for this op");
  if (!AllTensors(inputs)) {
    if (kernel != nullptr) return RunValueKernel(*kernel, std::move(inputs));
    // Bytes of any kind are handed on.
    for (const auto& [input, output] : node_.schema->aliases()) {
      if (output == 0 && node_.outputs.size() == 1) return std::vector<Value>{inputs[input]};
    }
    return absl::UnimplementedError("only tensors can be computed with here");
  }
  const std::vector<Tensor> tensors = TensorsOf(inputs);
  const DType exotic = FirstExotic(tensors);
  const bool aliases = !node_.schema->aliases().empty();
  if (HasKernel() && (exotic != DType::kString || aliases)) {
    absl::StatusOr<std::vector<Tensor>> outputs = RunOnTensors(tensors);
    if (outputs.ok()) return ValuesOf(*std::move(outputs));
    if (!absl::IsUnimplemented(outputs.status())) return outputs.status();
    refusal = outputs.status();
  }
  if (kernel != nullptr) return RunValueKernel(*kernel, std::move(inputs));
  const ElementUse use = node_.schema->element_use();
  if (HasKernel() && ((use == ElementUse::kMoves && exotic != DType::kInvalid) ||
                      (use == ElementUse::kCompares && exotic == DType::kString))) {
    return RunOnCodes(tensors);
  }
  if (node_.schema->expand() != nullptr && settings_.bodies != nullptr) {
    return RunExpanded(std::move(inputs));
  }
  return refusal;
}

absl::Status ValueNode::CheckExpands(const std::vector<Value>& given) {
  std::string types;
  for (const Value& value : given) {
    absl::StrAppend(&types, static_cast<int>(value.tensor().dtype()),
                    value.tensor().shape().ToString());
  }
  if (types == expandable_types_) return absl::OkStatus();
  Graph trial = expanded_->Clone();
  for (size_t i = 0; i < given.size(); ++i) {
    const Tensor& tensor = given[i].tensor();
    trial.value(trial.inputs()[i]).type = {ValueKind::kTensor, tensor.dtype(), tensor.shape()};
  }
  WEFT_RETURN_IF_ERROR(InferShapes(trial));
  WEFT_RETURN_IF_ERROR(ExpandNode(trial, trial.node_ids().front()));
  expandable_types_ = std::move(types);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> ValueNode::RunExpanded(std::vector<Value> inputs) {
  if (expanded_ == nullptr) expanded_ = GraphOf(node_);
  std::vector<Value> given;
  for (Value& input : inputs) {
    if (!IsAbsent(input)) given.push_back(std::move(input));
  }
  WEFT_RETURN_IF_ERROR(CheckExpands(given));
  WEFT_ASSIGN_OR_RETURN(std::vector<Value> results,
                        settings_.bodies->RunBody(*expanded_, std::move(given)));
  std::vector<Value> outputs(node_.outputs.size());
  size_t next = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (node_.outputs[i].valid()) outputs[i] = std::move(results[next++]);
  }
  return outputs;
}

absl::StatusOr<std::vector<Value>> ValueNode::RunValueKernel(const ValueKernel& kernel,
                                                             std::vector<Value> inputs) {
  NodeValueContext context(node_, settings_, std::move(inputs));
  WEFT_RETURN_IF_ERROR(kernel(context));
  return context.TakeOutputs();
}

absl::StatusOr<std::vector<Value>> ValueNode::RunOnCodes(const std::vector<Tensor>& inputs) {
  const DType dtype = FirstExotic(inputs);
  // What becomes of the dtype, the node as it is says; the shapes are those of the codes.
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> types, InferConcreteOutputs(node_, inputs));
  std::vector<Tensor> coded;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(coded),
               [dtype](const Tensor& input) { return input.dtype() == dtype; });
  const ElementCodes codes(dtype, coded);
  std::vector<Tensor> operands = inputs;
  for (Tensor& operand : operands) {
    if (operand.dtype() != dtype) continue;
    WEFT_ASSIGN_OR_RETURN(operand, codes.Encode(operand));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, RunOnTensors(operands));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid() || types[i].dtype != dtype) continue;
    WEFT_ASSIGN_OR_RETURN(outputs[i], codes.Decode(outputs[i]));
  }
  return ValuesOf(std::move(outputs));
}

std::string ValueNode::KeyOf(const std::vector<Tensor>& inputs) const {
  std::string key;
  for (const Tensor& input : inputs) {
    key.push_back(static_cast<char>(input.dtype()));
    const auto dims = input.shape().dims();
    key.push_back(static_cast<char>(dims.size()));
    key.append(reinterpret_cast<const char*>(dims.data()), dims.size() * sizeof(int64_t));
  }
  for (const int i : node_.schema->value_inputs()) {
    if (i >= static_cast<int>(inputs.size()) || !inputs[i].valid()) continue;
    key.append(static_cast<const char*>(inputs[i].raw_data()), inputs[i].bytes());
  }
  return key;
}

absl::StatusOr<std::vector<Tensor>> ValueNode::RunOnTensors(const std::vector<Tensor>& inputs) {
  const bool aliases = !node_.schema->aliases().empty();
  size_t bytes = 0;
  for (const Tensor& input : inputs) bytes += input.valid() ? input.bytes() : 0;
  const bool keep = !aliases && bytes <= kMaxKeptBytes;
  const std::string key = keep ? KeyOf(inputs) : "";
  if (keep) {
    const auto found = std::find_if(prepared_.begin(), prepared_.end(),
                                    [&key](const Prepared& one) { return one.key == key; });
    if (found != prepared_.end()) {
      std::rotate(prepared_.begin(), found, found + 1);
      return RunPrepared(prepared_.front(), inputs);
    }
  }
  NodeRunOptions options;
  options.registry = settings_.kernels;
  options.threads = settings_.threads;
  options.strict = settings_.strict;
  WEFT_ASSIGN_OR_RETURN(ConcreteNode concrete,
                        ConcreteNode::Create(node_, inputs, std::move(options)));
  std::vector<Tensor> outputs;
  if (aliases && concrete.Alias(outputs)) return outputs;
  Prepared prepared{key, std::make_unique<ConcreteNode>(std::move(concrete)), nullptr};
  WEFT_ASSIGN_OR_RETURN(prepared.kernel, prepared.node->Prepare());
  if (!keep) return RunPrepared(prepared, inputs);
  if (prepared_.size() == kMaxPrepared) prepared_.pop_back();
  prepared_.insert(prepared_.begin(), std::move(prepared));
  return RunPrepared(prepared_.front(), inputs);
}

absl::StatusOr<std::vector<Tensor>> ValueNode::RunPrepared(const Prepared& prepared,
                                                           const std::vector<Tensor>& inputs) {
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, prepared.node->AllocateOutputs());
  if (stream_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(stream_, CpuDevice().NewStream("values"));
  }
  const absl::Status status =
      RunKernelOnce(*prepared.kernel, inputs, outputs, CpuDevice(), *stream_, kValueKernelDeadline);
  if (!status.ok()) stream_.reset();  // it keeps its first error
  WEFT_RETURN_IF_ERROR(status);
  return outputs;
}

}  // namespace weft
