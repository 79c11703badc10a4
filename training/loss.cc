#include "training/loss.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kOutputPrefix[] = "output:";

// Lets the schema's hook look at a node that is in the graph already.
class NodeExpansion final : public ExpandContext {
 public:
  NodeExpansion(GraphBuilder& builder, NodeId node) : builder_(builder), node_(node) {}
  const Node& node() const override { return builder_.graph().node(node_); }
  const Graph& graph() const override { return builder_.graph(); }
  GraphBuilder& builder() override { return builder_; }

 private:
  GraphBuilder& builder_;
  const NodeId node_;
};

absl::StatusOr<ValueId> FindPrediction(const Graph& graph, const LossSpec& spec) {
  if (spec.output.empty()) {
    if (graph.outputs().empty()) return absl::InvalidArgumentError("the model has no outputs");
    return graph.outputs().front();
  }
  for (ValueId output : graph.outputs()) {
    if (graph.value(output).name == spec.output) return output;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the model has no output '", spec.output, "' to compute the loss from"));
}

// Scores with the classes on axis 1, as SoftmaxCrossEntropyLoss wants them.
absl::StatusOr<ValueId> ClassesSecond(GraphBuilder& builder, const LossSpec& spec, ValueId scores) {
  const ValueDef& value = builder.graph().value(scores);
  if (!value.type.shape.has_rank() || value.type.shape.rank() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("softmax_cross_entropy needs scores of rank 2 or more, one axis for the "
                     "classes; output '",
                     value.name, "' is ", value.type.ToString()));
  }
  const int rank = value.type.shape.rank();
  WEFT_ASSIGN_OR_RETURN(int axis, NormalizeAxis(spec.class_axis, rank));
  if (axis == 0) return absl::InvalidArgumentError("the class axis must not be the sample axis");
  if (axis == 1) return scores;
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + axis);
  order.insert(order.begin() + 1, axis);
  return builder.Op("Transpose", {scores}, {{"perm", order}});
}

ValueType LabelsTypeFor(const ValueType& scores) {
  std::vector<Dim> dims = {scores.shape.dim(0)};
  for (int i = 2; i < scores.shape.rank(); ++i) dims.push_back(scores.shape.dim(i));
  return {ValueKind::kTensor, DType::kInt64, SymbolicShape(std::move(dims))};
}

ValueId LabelsInput(Graph& graph, const ValueType& type) {
  if (const std::optional<ValueId> known = graph.FindValue(kLabelsInput); known.has_value()) {
    if (graph.value(*known).source == ValueSource::kInput) return *known;
    graph.RenameValue(*known, absl::StrCat(kLabelsInput, "/model"));
  }
  return graph.AddInput(kLabelsInput, type);
}

absl::StatusOr<MeanParts> PartsOf(GraphBuilder& builder, NodeId node) {
  NodeExpansion expansion(builder, node);
  WEFT_ASSIGN_OR_RETURN(MeanParts parts, builder.graph().node(node).schema->mean_loss()(expansion));
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

// A scalar that is some mean over the samples at hand.
absl::StatusOr<MeanParts> PartsOfSampleMean(GraphBuilder& builder, ValueId loss) {
  const Graph& graph = builder.graph();
  for (ValueId input : graph.inputs()) {
    if (graph.input_role(input) != InputRole::kData) continue;
    const DType dtype = graph.value(loss).type.dtype;
    const ValueId rows = builder.Op("Shape", {input}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
    const ValueId scalar =
        builder.Op("Squeeze", {builder.Op("Cast", {rows}, {{"to", static_cast<int64_t>(dtype)}})});
    const ValueId flat = builder.Op("Reshape", {loss, builder.Ints({})});
    const MeanParts parts{builder.Op("Mul", {flat, scalar}), scalar};
    WEFT_RETURN_IF_ERROR(builder.status());
    return parts;
  }
  return absl::InvalidArgumentError("the model has no data input to count the samples of");
}

absl::StatusOr<MeanParts> GraphLoss(GraphBuilder& builder, const std::string& name) {
  Graph& graph = builder.graph();
  const std::optional<ValueId> loss = graph.FindValue(name);
  if (!loss) return absl::InvalidArgumentError(absl::StrCat("the model has no value '", name, "'"));
  const ValueDef& value = graph.value(*loss);
  const std::optional<Shape> shape = value.type.shape.ToConcrete();
  if (!IsFloatingPoint(value.type.dtype) || !shape || shape->num_elements() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss '", name, "' is ", value.type.ToString(), ", expected one floating number"));
  }
  if (value.source == ValueSource::kNode && value.output_index == 0) {
    const Node& node = graph.node(value.producer);
    if (node.schema != nullptr && node.schema->mean_loss() &&
        node.attributes.String("reduction", "mean") == "mean") {
      return PartsOf(builder, node.id);
    }
  }
  return PartsOfSampleMean(builder, *loss);
}

}  // namespace

absl::StatusOr<LossSpec> ParseLoss(const std::string& text) {
  LossSpec spec;
  spec.kind = text;
  if (text == "softmax_cross_entropy" || text == "mse") return spec;
  if (absl::StartsWith(text, kOutputPrefix) && text.size() > sizeof(kOutputPrefix) - 1) return spec;
  return absl::InvalidArgumentError(
      absl::StrCat("no loss '", text, "'; there are softmax_cross_entropy, mse and output:NAME"));
}

absl::StatusOr<MeanParts> AddLoss(GraphBuilder& builder, const LossSpec& spec) {
  if (absl::StartsWith(spec.kind, kOutputPrefix)) {
    return GraphLoss(builder, spec.kind.substr(sizeof(kOutputPrefix) - 1));
  }
  Graph& graph = builder.graph();
  WEFT_ASSIGN_OR_RETURN(ValueId prediction, FindPrediction(graph, spec));
  ValueId loss = kNoValue;
  if (spec.kind == "softmax_cross_entropy") {
    WEFT_ASSIGN_OR_RETURN(ValueId scores, ClassesSecond(builder, spec, prediction));
    WEFT_RETURN_IF_ERROR(builder.status());
    const ValueId labels = LabelsInput(graph, LabelsTypeFor(builder.type(scores)));
    loss = builder.Op("SoftmaxCrossEntropyLoss", {scores, labels},
                      {{"reduction", std::string("mean")}});
  } else {
    const ValueId labels = LabelsInput(graph, builder.type(prediction));
    loss = builder.WeftOp("MeanSquaredError", {prediction, labels});
  }
  WEFT_RETURN_IF_ERROR(builder.status());
  return PartsOf(builder, graph.value(loss).producer);
}

absl::StatusOr<MeanParts> AddAccuracy(GraphBuilder& builder, const LossSpec& spec) {
  Graph& graph = builder.graph();
  WEFT_ASSIGN_OR_RETURN(ValueId prediction, FindPrediction(graph, spec));
  WEFT_ASSIGN_OR_RETURN(ValueId scores, ClassesSecond(builder, spec, prediction));
  WEFT_RETURN_IF_ERROR(builder.status());
  const ValueId labels = LabelsInput(graph, LabelsTypeFor(builder.type(scores)));
  const ValueId count = builder.Op("Cast", {builder.Op("Size", {labels})},
                                   {{"to", static_cast<int64_t>(DType::kFloat32)}});
  const MeanParts parts{builder.WeftOp("CountCorrect", {scores, labels}), count};
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

}  // namespace weft
