#include "onnx_import/graph_converter.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_bodies.h"
#include "graph/schema_check.h"
#include "onnx_import/codec/attribute_codec.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/type_codec.h"
#include "onnx_import/node_order.h"
#include "onnx_import/upgrade.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool MayBeParameter(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// The version of the operator set that a node is written in.
absl::StatusOr<int64_t> VersionOf(const std::string& domain,
                                  const std::map<std::string, int64_t>& opsets) {
  const auto found = opsets.find(domain);
  if (found == opsets.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model imports no operator set ", Quoted(domain.empty() ? "ai.onnx" : domain),
        ", which this operator belongs to; export it again"));
  }
  const int64_t version = found->second;
  if (domain.empty() && version < kOldestOpset) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model is written for operator set ", version, ", expected ", kOldestOpset,
                     " or later", "; convert it with onnx.version_converter"));
  }
  return version;
}

// What a node of an operator set that is not known yet does not fit may have changed since.
absl::Status OfUnknownOpset(const absl::Status& status, int64_t version) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the model is written for operator set ", version, ", and ",
                   kOldestOpset, " to ", kNewestOpset,
                   " are known: the operator may have changed since; export the model for operator "
                   "set ",
                   kNewestOpset));
}

// ValueInfo of inputs that are not merely the place of an initializer's default.
absl::StatusOr<ValueType> TypeOfInput(const onnx::ValueInfoProto& input) {
  absl::StatusOr<ValueType> type = DecodeType(input.type());
  if (!type.ok()) {
    return Annotate(type.status(), absl::StrCat("graph input ", Quoted(input.name())));
  }
  return type;
}

// The one attribute of a Constant node as a tensor.
absl::StatusOr<Tensor> ConstantValue(const std::string& kind, const onnx::AttributeProto& attribute,
                                     const TensorSource& source) {
  WEFT_ASSIGN_OR_RETURN(const auto type, AttributeTypeOf(attribute));
  const auto is = [&](const char* name, onnx::AttributeProto::AttributeType expected) {
    return kind == name && type == expected;
  };
  if (is("value", onnx::AttributeProto::TENSOR)) return DecodeTensor(attribute.t(), source);
  if (is("sparse_value", onnx::AttributeProto::SPARSE_TENSOR)) {
    return DecodeSparseTensor(attribute.sparse_tensor(), source);
  }
  if (is("value_int", onnx::AttributeProto::INT)) return Tensor::Scalar<int64_t>(attribute.i());
  if (is("value_float", onnx::AttributeProto::FLOAT)) return Tensor::Scalar<float>(attribute.f());
  if (is("value_string", onnx::AttributeProto::STRING)) {
    return Tensor::OfStrings(Shape{}, {attribute.s()});
  }
  if (is("value_ints", onnx::AttributeProto::INTS)) {
    const std::vector<int64_t> values(attribute.ints().begin(), attribute.ints().end());
    return Tensor::Of<int64_t>(Shape{attribute.ints_size()}, values);
  }
  if (is("value_floats", onnx::AttributeProto::FLOATS)) {
    const std::vector<float> values(attribute.floats().begin(), attribute.floats().end());
    return Tensor::Of<float>(Shape{attribute.floats_size()}, values);
  }
  if (is("value_strings", onnx::AttributeProto::STRINGS)) {
    return Tensor::OfStrings(Shape{attribute.strings_size()},
                             {attribute.strings().begin(), attribute.strings().end()});
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "it is ", onnx::AttributeProto::AttributeType_Name(type),
      ", expected value (TENSOR), sparse_value (SPARSE_TENSOR), value_int(s), value_float(s) or "
      "value_string(s) of their kinds"));
}

// A file that says of an output that it is of another type than its nodes make is damaged. Shapes
// are often declared wrongly and do no harm.
absl::Status CheckDeclaredOutput(const onnx::ValueInfoProto& output, const ValueDef& value) {
  const absl::StatusOr<ValueType> declared = DecodeType(output.type());
  if (!declared.ok() || declared->dtype == DType::kInvalid) return absl::OkStatus();
  if (value.type.dtype == DType::kInvalid || value.type.dtype == declared->dtype) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "graph output ", Quoted(output.name()), " is declared as ", declared->ToString(),
      ", but its node makes ", value.type.ToString(), "; the file is damaged, export it again"));
}

// Kernels read constants where they are, so those that lie unaligned in a file are copied.
absl::StatusOr<Tensor> AlignedConstant(Tensor tensor) {
  if (tensor.dtype() == DType::kString || IsAligned(tensor)) return tensor;
  return CopyFromFile(tensor);
}

void DropTrailingOmitted(std::vector<ValueId>& inputs) {
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
}

}  // namespace

void GraphConverter::Declare(const onnx::GraphProto& proto) {
  for (const onnx::ValueInfoProto& value : proto.value_info()) {
    declared_[value.name()] = &value.type();
  }
  for (const onnx::ValueInfoProto& output : proto.output()) {
    declared_[output.name()] = &output.type();
  }
}

std::optional<ValueId> GraphConverter::Find(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || !found->second.valid()) return std::nullopt;
  return found->second;
}

absl::Status GraphConverter::Convert(const onnx::GraphProto& proto,
                                     const onnx::GraphProto* algorithm) {
  graph_.name = proto.name();
  graph_.opsets = context_.opsets;
  ConversionScope scope;
  scope.opsets = outer_scope_ == nullptr ? &context_.opsets : outer_scope_->opsets;
  if (outer_scope_ != nullptr) scope.bindings = outer_scope_->bindings;
  Declare(proto);
  WEFT_RETURN_IF_ERROR(AddInputs(proto, scope));
  WEFT_RETURN_IF_ERROR(AddInitializers(proto, ParameterStorage::kInitializer, scope));
  WEFT_RETURN_IF_ERROR(ConvertNodes(proto.node(), scope));
  WEFT_RETURN_IF_ERROR(AddOutputs(proto, scope));
  if (algorithm != nullptr) {
    Declare(*algorithm);
    WEFT_RETURN_IF_ERROR(AddInputs(*algorithm, scope));
    WEFT_RETURN_IF_ERROR(
        AddInitializers(*algorithm, ParameterStorage::kAlgorithmInitializer, scope));
    WEFT_RETURN_IF_ERROR(ConvertNodes(algorithm->node(), scope));
    WEFT_RETURN_IF_ERROR(AddOutputs(*algorithm, scope));
  }
  if (IsMain()) values_ = std::move(scope.values);
  return absl::OkStatus();
}

absl::Status GraphConverter::AddInputs(const onnx::GraphProto& proto, ConversionScope& scope) {
  absl::flat_hash_map<absl::string_view, bool> initialized;
  for (const onnx::TensorProto& tensor : proto.initializer()) initialized[tensor.name()] = true;
  for (const onnx::SparseTensorProto& tensor : proto.sparse_initializer()) {
    initialized[tensor.values().name()] = true;
  }
  for (const onnx::ValueInfoProto& input : proto.input()) {
    if (initialized.contains(input.name())) continue;
    WEFT_ASSIGN_OR_RETURN(ValueType type, TypeOfInput(input));
    const auto given = context_.options.input_shapes.find(input.name());
    if (IsMain() && given != context_.options.input_shapes.end()) type.shape = given->second;
    const ValueId value = graph_.AddInput(input.name(), std::move(type));
    graph_.value(value).origin.logical_value = graph_.value(value).name;
    scope.values[input.name()] = value;
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::AddInitializers(const onnx::GraphProto& proto,
                                             ParameterStorage storage, ConversionScope& scope) {
  absl::flat_hash_map<absl::string_view, bool> inputs;
  for (const onnx::ValueInfoProto& input : proto.input()) inputs[input.name()] = true;
  for (int i = 0; i < proto.initializer_size(); ++i) {
    const onnx::TensorProto& initializer = proto.initializer(i);
    absl::StatusOr<Tensor> tensor = DecodeTensor(initializer, context_.source);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), absl::StrCat("initializer ", Quoted(initializer.name())));
    }
    const size_t parameters = parameters_.size();
    WEFT_ASSIGN_OR_RETURN(scope.values[initializer.name()],
                          AddTensor(initializer.name(), *std::move(tensor), storage, i,
                                    /*may_be_parameter=*/IsMain()));
    if (parameters_.size() > parameters) {
      parameters_.back().also_graph_input = inputs.contains(initializer.name());
    }
  }
  for (const onnx::SparseTensorProto& initializer : proto.sparse_initializer()) {
    const std::string& name = initializer.values().name();
    absl::StatusOr<Tensor> tensor = DecodeSparseTensor(initializer, context_.source);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), absl::StrCat("sparse initializer ", Quoted(name)));
    }
    WEFT_ASSIGN_OR_RETURN(scope.values[name],
                          AddTensor(name, *std::move(tensor), ParameterStorage::kInitializer, 0,
                                    /*may_be_parameter=*/false));
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::AddOutputs(const onnx::GraphProto& proto, ConversionScope& scope) {
  for (const onnx::ValueInfoProto& output : proto.output()) {
    const std::optional<ValueId> value = Resolve(output.name(), scope);
    if (!value || !value->valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat("graph output ", Quoted(output.name()),
                       " is defined by no node, input or initializer; the model is incomplete, "
                       "export it again"));
    }
    if (IsMain()) WEFT_RETURN_IF_ERROR(CheckDeclaredOutput(output, graph_.value(*value)));
    graph_.AddOutput(*value);
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> GraphConverter::AddTensor(const std::string& name, Tensor tensor,
                                                  ParameterStorage storage, int index,
                                                  bool may_be_parameter) {
  const bool is_state = may_be_parameter && storage != ParameterStorage::kConstantNode &&
                        tensor.dtype() != DType::kString && context_.state.contains(name);
  const bool parameter =
      is_state || (may_be_parameter && !context_.only_state && MayBeParameter(tensor.dtype()));
  const ValueType type{ValueKind::kTensor, tensor.dtype(), tensor.shape()};
  const Shape shape = tensor.shape();
  const bool is_variable = parameter && context_.options.parameters_as_variables;
  if (!is_variable) {
    WEFT_ASSIGN_OR_RETURN(tensor, AlignedConstant(std::move(tensor)));
  }
  const ValueId value = is_variable ? graph_.AddVariable(name, type, std::move(tensor), false)
                                    : graph_.AddConstant(name, std::move(tensor));
  ValueDef& def = graph_.value(value);
  def.origin.logical_value = def.name;
  if (parameter) {
    parameters_.push_back(
        {def.name, storage, index, /*also_graph_input=*/false, type.dtype, shape});
  }
  return value;
}

std::optional<ValueId> GraphConverter::Resolve(const std::string& name, ConversionScope& scope) {
  const auto found = scope.values.find(name);
  if (found != scope.values.end()) return found->second;
  if (scope.in_function || outer_ == nullptr) return std::nullopt;
  const std::optional<ValueId> outside = outer_->Resolve(name, *outer_scope_);
  if (!outside || !outside->valid()) return outside;
  const ValueId value = graph_.AddInput(name, outer_->graph_.value(*outside).type);
  scope.values[name] = value;
  captures_.push_back(name);
  return value;
}

bool GraphConverter::IsDefined(const std::string& name, const ConversionScope& scope) const {
  if (scope.values.contains(name)) return true;
  return !scope.in_function && outer_ != nullptr && outer_->IsDefined(name, *outer_scope_);
}

absl::Status GraphConverter::ConvertNodes(const NodeProtos& nodes, ConversionScope& scope) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> order,
                        OrderNodes(nodes, [this, &scope](const std::string& name) {
                          return IsDefined(name, scope);
                        }));
  for (const int index : order) {
    WEFT_RETURN_IF_ERROR(ConvertNode(nodes[index], index, scope));
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::ConvertNode(const onnx::NodeProto& proto, int index,
                                         ConversionScope& scope) {
  const std::string label = NodeLabel(proto, index);
  const std::string domain = NormalizedDomain(proto.domain());
  const std::string name =
      absl::StrCat(scope.prefix,
                   proto.name().empty() ? absl::StrCat(proto.op_type(), "_", index) : proto.name());
  if (const onnx::FunctionProto* function = context_.functions.Find(proto)) {
    return Annotate(InlineCall(proto, name, *function, scope), label);
  }
  const absl::StatusOr<int64_t> version = VersionOf(domain, *scope.opsets);
  if (!version.ok()) return Annotate(version.status(), label);
  if (domain == kWeftDomain) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": operators of the domain ",
                                                   Quoted(domain),
                                                   " are made by Weft from those of the standard, "
                                                   "and no file may hold one; use the standard's, "
                                                   "or a custom operator of another domain"));
  }
  if (domain.empty() && proto.op_type() == "Constant") {
    return Annotate(ConvertConstant(proto, index, scope), label);
  }
  return AddOperator(proto, *version, name, scope);
}

absl::Status GraphConverter::ConvertConstant(const onnx::NodeProto& proto, int index,
                                             ConversionScope& scope) {
  if (proto.input_size() != 0 || proto.output_size() != 1 || proto.output(0).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", proto.input_size(), " inputs and ",
                                                   proto.output_size(),
                                                   " outputs, expected none and one"));
  }
  if (proto.attribute_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", proto.attribute_size(), " attributes, expected its value alone"));
  }
  const onnx::AttributeProto* attribute = &proto.attribute(0);
  if (!attribute->ref_attr_name().empty()) {
    const auto bound = scope.bindings.find(attribute->ref_attr_name());
    if (bound == scope.bindings.end()) {
      return absl::InvalidArgumentError(absl::StrCat("its value is the function attribute ",
                                                     Quoted(attribute->ref_attr_name()),
                                                     ", which the call does not give"));
    }
    attribute = bound->second;
  }
  const std::string& kind = proto.attribute(0).name();
  absl::StatusOr<Tensor> tensor = ConstantValue(kind, *attribute, context_.source);
  if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("attribute ", Quoted(kind)));
  const std::string& output = proto.output(0);
  const auto outside = scope.output_names.find(output);
  const std::string name =
      outside != scope.output_names.end() ? outside->second : absl::StrCat(scope.prefix, output);
  const bool may_be_parameter = IsMain() && !scope.in_function && kind != "sparse_value";
  WEFT_ASSIGN_OR_RETURN(scope.values[output],
                        AddTensor(name, *std::move(tensor), ParameterStorage::kConstantNode, index,
                                  may_be_parameter));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueId>> GraphConverter::ResolveInputs(const onnx::NodeProto& proto,
                                                                   ConversionScope& scope) {
  std::vector<ValueId> inputs;
  for (const std::string& input : proto.input()) {
    if (input.empty()) {
      inputs.push_back(kNoValue);
      continue;
    }
    const std::optional<ValueId> value = Resolve(input, scope);
    if (!value) {
      return absl::InternalError(absl::StrCat("input ", Quoted(input),
                                              " was ordered but is not "
                                              "defined"));
    }
    inputs.push_back(*value);
  }
  // Where captures follow, every place counts.
  const bool has_body =
      std::any_of(proto.attribute().begin(), proto.attribute().end(),
                  [](const onnx::AttributeProto& attribute) { return attribute.has_g(); });
  if (!has_body) DropTrailingOmitted(inputs);
  return inputs;
}

absl::Status GraphConverter::ConvertAttributes(const onnx::NodeProto& proto, ConversionScope& scope,
                                               Graph::NodeSpec& spec) {
  std::map<std::string, std::vector<ValueId>> captured;  // by attribute, in order of names
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    const std::string& name = attribute.name();
    const onnx::AttributeProto* value = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      const auto bound = scope.bindings.find(attribute.ref_attr_name());
      if (bound == scope.bindings.end()) continue;  // the call leaves it out
      value = bound->second;
    }
    const auto decode_subgraph =
        [&](const onnx::GraphProto& graph) -> absl::StatusOr<std::shared_ptr<Graph>> {
      auto subgraph = std::make_shared<Graph>();
      GraphConverter converter(context_, *subgraph, this, &scope);
      WEFT_RETURN_IF_ERROR(converter.Convert(graph));
      if (!converter.captures().empty()) {
        spec.attributes.Set(CapturesAttribute(name), converter.captures());
      }
      for (const std::string& capture : converter.captures()) {
        captured[name].push_back(*Resolve(capture, scope));
      }
      return subgraph;
    };
    WEFT_RETURN_IF_ERROR(
        DecodeAttribute(name, *value, context_.source, decode_subgraph, spec.attributes));
  }
  for (const auto& [name, values] : captured) {
    spec.inputs.insert(spec.inputs.end(), values.begin(), values.end());
  }
  return absl::OkStatus();
}

absl::Status GraphConverter::AddOperator(const onnx::NodeProto& proto, int64_t version,
                                         const std::string& name, ConversionScope& scope) {
  Graph::NodeSpec spec;
  spec.name = name;
  spec.domain = NormalizedDomain(proto.domain());
  spec.op = proto.op_type();
  spec.keep_empty_outputs = true;
  const std::string label = absl::StrCat("node ", Quoted(name), " (", spec.op, ")");
  absl::StatusOr<std::vector<ValueId>> inputs = ResolveInputs(proto, scope);
  if (!inputs.ok()) return Annotate(inputs.status(), label);
  spec.inputs = *std::move(inputs);
  absl::Status status = ConvertAttributes(proto, scope, spec);
  if (!status.ok()) return Annotate(status, label);
  for (const std::string& output : proto.output()) {
    const auto outside = scope.output_names.find(output);
    spec.outputs.push_back(output.empty()                        ? ""
                           : outside != scope.output_names.end() ? outside->second
                                                                 : scope.prefix + output);
  }
  while (!spec.outputs.empty() && spec.outputs.back().empty()) spec.outputs.pop_back();

  const NodeId first(graph_.node_capacity());
  if (spec.domain.empty()) {
    if (version < 6) spec.attributes.Erase("consumed_inputs");  // a hint to reuse memory
    NodeUpgrade upgrade(graph_, spec, version);
    status = UpgradeRegistry::Global().Run(upgrade);
    if (!status.ok()) return Annotate(status, label);
  }
  const Node& node = graph_.node(graph_.AddNode(std::move(spec)));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    scope.values[proto.output(static_cast<int>(i))] = node.outputs[i];
  }
  status = Finish(first, node.name);
  const bool is_unknown = NormalizedDomain(proto.domain()).empty() && version > kNewestOpset;
  return is_unknown ? OfUnknownOpset(status, version) : status;
}

absl::Status GraphConverter::Finish(NodeId first, const std::string& origin) {
  for (NodeId id = first; id.value < graph_.node_capacity(); ++id.value) {
    Node& node = graph_.node(id);
    node.origin.forward_node = origin;
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      ValueDef& value = graph_.value(output);
      value.origin.forward_node = origin;
      value.origin.logical_value = value.name;
    }
    WEFT_RETURN_IF_ERROR(CheckNodeAgainstSchema(graph_, node));
    // A branch that is never taken may not fit: it counts when it runs.
    if (context_.options.infer_shapes) {
      const absl::Status inferred = InferNode(graph_, id);
      if (!inferred.ok() && IsMain()) return inferred;
    }
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      ValueDef& value = graph_.value(output);
      const auto declared = declared_.find(value.name);
      if (value.type.dtype != DType::kInvalid || declared == declared_.end()) continue;
      absl::StatusOr<ValueType> type = DecodeType(*declared->second);
      if (type.ok()) value.type = *std::move(type);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
