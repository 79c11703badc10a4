#include "ops/kernels/cuda/linear/testing/joined_products.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/join_products.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

absl::Status MakeJoinedKnown() {
  static const absl::Status status = OpRegistry::Global().Register(JoinedProductSchema());
  return status;
}

Tensor Zeros(const ValueType& type) {
  Tensor zeros = Tensor::Allocate(type.dtype, *type.shape.ToConcrete()).value();
  std::memset(zeros.raw_data(), 0, zeros.bytes());
  return zeros;
}

// A graph while it grows.
class LayerWriter {
 public:
  LayerWriter(int64_t rows, int64_t width, int64_t wide, DType dtype,
              const std::function<Tensor(const Shape&, DType)>& input)
      : rows_(rows), width_(width), wide_(wide), dtype_(dtype), input_(input) {}

  void Bias() { Output(Biased()); }
  void BiasAndMatrix() { Output(builder_.Op("Add", {Biased(), Input({rows_, wide_})})); }
  void BiasAndGelu() { Output(Gelu(Biased())); }
  void BiasAndGeluOfTraining() {
    const ValueId z = Biased();
    Output(z);
    Output(Gelu(z));
  }
  void GradientOfGelu() {
    const ValueId product = builder_.WeftOp(
        "MatMul", {Input({rows_, width_}), Input({wide_, width_})}, {{"transB", int64_t{1}}});
    Output(builder_.WeftOp("TanhGeluGrad", {product, Input({rows_, wide_})}));
  }
  void GradientsOfParameters() {
    const ValueId dy = Input({rows_, wide_});
    Output(builder_.WeftOp("MatMulReduceBatch", {Input({rows_, width_}), dy}));
    Output(builder_.WeftOp("SumToShape", {dy, builder_.Ints({wide_})}));
  }

  absl::StatusOr<JoinedCase> Joined() {
    WEFT_RETURN_IF_ERROR(builder_.status());
    return JoinedCaseOf(graph_, tensors_);
  }

 private:
  ValueId Input(const Shape& shape) {
    const ValueId value = graph_.AddInput("x", {ValueKind::kTensor, dtype_, SymbolicShape(shape)});
    tensors_[value] = input_(shape, dtype_);
    return value;
  }
  ValueId Biased() {
    const ValueId product = builder_.Op("MatMul", {Input({rows_, width_}), Input({width_, wide_})});
    return builder_.Op("Add", {product, Input({wide_})});
  }
  ValueId Gelu(ValueId z) {
    return builder_.Op("Gelu", {z}, {{"approximate", std::string("tanh")}});
  }
  void Output(ValueId value) { graph_.AddOutput(value); }

  const int64_t rows_, width_, wide_;
  const DType dtype_;
  const std::function<Tensor(const Shape&, DType)>& input_;
  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> tensors_;
};

}  // namespace

absl::StatusOr<JoinedCase> JoinedCaseOf(Graph& graph, const std::map<ValueId, Tensor>& tensors) {
  WEFT_RETURN_IF_ERROR(MakeJoinedKnown());
  WEFT_RETURN_IF_ERROR(JoinProducts(graph, [](const Graph&) { return true; }).status());
  if (graph.num_nodes() != 1 || graph.node(graph.node_ids()[0]).op != kJoinedProductOp) {
    return absl::InternalError(
        absl::StrCat("the nodes are not joined to one:\n", graph.DebugString()));
  }
  const Node& node = graph.node(graph.node_ids()[0]);
  JoinedCase made;
  made.joined = {.domain = node.domain,
                 .op = node.op,
                 .attributes = node.attributes,
                 .inputs = {},
                 .outputs = std::vector<bool>(node.outputs.size(), true)};
  for (const ValueId input : node.inputs) {
    const ValueDef& value = graph.value(input);
    made.joined.inputs.push_back(value.source == ValueSource::kConstant ? value.constant
                                                                        : tensors.at(input));
  }
  WEFT_RETURN_IF_ERROR(OutputsOfJoinedParts(made.joined, [&made](const OpCase& part) {
                         made.parts.push_back(part);
                         return std::vector<Tensor>{Tensor()};
                       }).status());
  return made;
}

absl::StatusOr<std::vector<Tensor>> OutputsOfJoinedParts(
    const OpCase& joined,
    const std::function<absl::StatusOr<std::vector<Tensor>>(const OpCase& part)>& run) {
  const Graph& body = *std::get<std::shared_ptr<Graph>>(*joined.attributes.Find(kFusedBody));
  std::map<ValueId, Tensor> values;
  for (size_t i = 0; i < joined.inputs.size(); ++i) values[body.inputs()[i]] = joined.inputs[i];
  for (const NodeId id : body.node_ids()) {
    const Node& node = body.node(id);
    OpCase part{.domain = node.domain, .op = node.op, .attributes = node.attributes, .inputs = {}};
    part.tf32 = joined.tf32;
    for (const ValueId input : node.inputs) {
      Tensor& operand = part.inputs.emplace_back();
      if (!input.valid()) continue;
      const ValueDef& value = body.value(input);
      operand = value.source == ValueSource::kConstant ? value.constant : values[input];
      if (!operand.valid()) operand = Zeros(value.type);
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, run(part));
    values[node.outputs[0]] = outputs[0];
  }
  std::vector<Tensor> results;
  for (const ValueId output : body.outputs()) results.push_back(values[output]);
  return results;
}

absl::StatusOr<std::vector<JoinedCase>> JoinedCasesOfLayer(
    int64_t rows, int64_t width, int64_t wide, DType dtype,
    const std::function<Tensor(const Shape&, DType)>& input) {
  constexpr std::pair<const char*, void (LayerWriter::*)()> kForms[] = {
      {"bias", &LayerWriter::Bias},
      {"bias, addend", &LayerWriter::BiasAndMatrix},
      {"bias, Gelu", &LayerWriter::BiasAndGelu},
      {"bias, Gelu and its operand", &LayerWriter::BiasAndGeluOfTraining},
      {"TanhGeluGrad", &LayerWriter::GradientOfGelu},
      {"gradient of the bias", &LayerWriter::GradientsOfParameters}};
  std::vector<JoinedCase> cases;
  for (const auto& [name, write] : kForms) {
    LayerWriter writer(rows, width, wide, dtype, input);
    (writer.*write)();
    WEFT_ASSIGN_OR_RETURN(cases.emplace_back(), writer.Joined());
    cases.back().name = name;
  }
  return cases;
}

}  // namespace weft::testing
