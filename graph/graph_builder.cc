#include "graph/graph_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"

namespace weft {

ValueId GraphBuilder::Op(const std::string& op, std::vector<ValueId> inputs,
                         Attributes attributes) {
  return Ops("", op, std::move(inputs), std::move(attributes), {true}).front();
}

ValueId GraphBuilder::WeftOp(const std::string& op, std::vector<ValueId> inputs,
                             Attributes attributes) {
  return Ops(std::string(kWeftDomain), op, std::move(inputs), std::move(attributes), {true})
      .front();
}

std::vector<ValueId> GraphBuilder::Ops(const std::string& domain, const std::string& op,
                                       std::vector<ValueId> inputs, Attributes attributes,
                                       std::vector<bool> wanted) {
  const std::vector<ValueId> none(wanted.size(), kNoValue);
  if (!status_.ok()) return none;
  Graph::NodeSpec spec;
  spec.name = absl::StrCat(prefix_, op);
  spec.domain = domain;
  spec.op = op;
  spec.attributes = std::move(attributes);
  spec.inputs = std::move(inputs);
  spec.keep_empty_outputs = true;
  spec.phase = phase_;
  spec.stage = stage_;
  spec.origin = origin_;
  const OpSchema* schema = OpRegistry::Global().Find(domain, op);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const FormalParameter* formal = schema == nullptr ? nullptr : schema->FormalOutput(i);
    // "grad/LSTM", "grad/LSTM.Y_h".
    std::string name = i == 0              ? spec.name
                       : formal == nullptr ? absl::StrCat(spec.name, ".", i)
                                           : absl::StrCat(spec.name, ".", formal->name);
    spec.outputs.push_back(wanted[i] ? std::move(name) : "");
  }
  const NodeId id = graph_.AddNode(std::move(spec));
  const Node& node = graph_.node(id);
  if (schema == nullptr) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(DescribeNode(node), ": no op of this name is registered", DidYouMean(node)));
  } else {
    status_ = InferNode(graph_, id);
  }
  if (status_.ok()) return node.outputs;
  graph_.RemoveNode(id);
  return none;
}

const ValueType& GraphBuilder::type(ValueId value) const {
  static const ValueType* const unknown = new ValueType();
  return value.valid() ? graph_.value(value).type : *unknown;
}

ValueId GraphBuilder::Constant(Tensor tensor, const std::string& name) {
  if (!status_.ok()) return kNoValue;
  const ValueId id = graph_.AddConstant(name.empty() ? absl::StrCat(prefix_, "constant") : name,
                                        std::move(tensor));
  graph_.value(id).origin = origin_;
  return id;
}

ValueId GraphBuilder::Ints(const std::vector<int64_t>& values) {
  return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values));
}

ValueId GraphBuilder::Float(float value) { return Constant(Tensor::Scalar<float>(value)); }

ValueId GraphBuilder::Scalar(DType dtype, double value) {
  if (!status_.ok()) return kNoValue;
  absl::StatusOr<Tensor> tensor = CastTensor(Tensor::Scalar<double>(value), dtype);
  if (!tensor.ok()) {
    status_ = tensor.status();
    return kNoValue;
  }
  return Constant(*std::move(tensor));
}

void GraphBuilder::Name(ValueId value, const std::string& name) {
  if (value.valid()) graph_.RenameValue(value, name);
}

GraphBuilder BuilderFor(Graph& graph, const Node& node) {
  GraphBuilder builder(graph);
  builder.set_phase(node.phase);
  builder.set_stage(node.stage);
  Origin origin = node.origin;
  if (origin.forward_node.empty()) origin.forward_node = node.name;
  builder.set_origin(std::move(origin));
  builder.set_name_prefix(absl::StrCat(node.name, "/"));
  return builder;
}

}  // namespace weft
