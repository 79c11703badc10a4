#include "training/graph/loss.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "training/graph/loss_parts.h"

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

absl::StatusOr<MeanParts> PartsOf(GraphBuilder& builder, NodeId node) {
  NodeExpansion expansion(builder, node);
  WEFT_ASSIGN_OR_RETURN(MeanParts parts, builder.graph().node(node).schema->mean_loss()(expansion));
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

// How many samples there are at hand, as a scalar of this type.
absl::StatusOr<ValueId> SamplesAtHand(GraphBuilder& builder, DType dtype) {
  const Graph& graph = builder.graph();
  for (const ValueId input : graph.inputs()) {
    if (graph.input_role(input) != InputRole::kData) continue;
    const ValueId rows = builder.Op("Shape", {input}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
    const ValueId scalar =
        builder.Op("Squeeze", {builder.Op("Cast", {rows}, {{"to", static_cast<int64_t>(dtype)}})});
    WEFT_RETURN_IF_ERROR(builder.status());
    return scalar;
  }
  return absl::InvalidArgumentError("the model has no data input to count the samples of");
}

// A scalar that is some mean over the samples at hand.
absl::StatusOr<MeanParts> PartsOfSampleMean(GraphBuilder& builder, ValueId loss) {
  const DType dtype = builder.graph().value(loss).type.dtype;
  WEFT_ASSIGN_OR_RETURN(const ValueId samples, SamplesAtHand(builder, dtype));
  const ValueId flat = builder.Op("Reshape", {loss, builder.Ints({})});
  const MeanParts parts{builder.Op("Mul", {flat, samples}), samples};
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

// What a value is computed from.
struct Sources {
  bool has_data = false;
  bool has_trained = false;
};

Sources SourcesOf(const Graph& graph, ValueId value) {
  Sources sources;
  std::vector<bool> seen(static_cast<size_t>(graph.value_capacity()));
  std::vector<ValueId> pending = {value};
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (!id.valid() || seen[static_cast<size_t>(id.value)]) continue;
    seen[static_cast<size_t>(id.value)] = true;
    const ValueDef& def = graph.value(id);
    const Variable* const variable = graph.VariableOf(id);
    sources.has_trained |= variable != nullptr && variable->trainable;
    sources.has_data |=
        def.source == ValueSource::kInput && graph.input_role(id) == InputRole::kData;
    if (def.source != ValueSource::kNode) continue;
    const Node& node = graph.node(def.producer);
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return sources;
}

// The Div that makes the loss, as exporters write a mean over the tokens that count: a sum divided
// by a number that depends on the data and on nothing that trains. Null where it is not one.
const Node* MaskedMean(const Graph& graph, ValueId loss) {
  while (graph.value(loss).source == ValueSource::kNode) {
    const Node& node = graph.node(graph.value(loss).producer);
    const bool is_quotient = node.domain.empty() && node.op == "Div";
    if (is_quotient) {
      const Sources weight = SourcesOf(graph, node.inputs[1]);
      const bool is_mean =
          weight.has_data && !weight.has_trained && SourcesOf(graph, node.inputs[0]).has_data;
      return is_mean ? &node : nullptr;
    }
    if (node.schema == nullptr || node.schema->aliases().empty()) return nullptr;
    loss = node.inputs[0];
  }
  return nullptr;
}

// The input from which a node makes a mean, if it is given one: conversions, and arithmetic in
// which one operand alone depends on data. No value where there is none.
ValueId KeepsMeanOf(const Graph& graph, const Node& node) {
  if (node.schema != nullptr && !node.schema->aliases().empty()) return node.inputs[0];
  if (!node.domain.empty()) return kNoValue;
  if (node.op == "Cast" || node.op == "Neg") return node.inputs[0];
  const bool either = node.op == "Add" || node.op == "Sub" || node.op == "Mul";
  if (!either && node.op != "Div") return kNoValue;
  const bool first = SourcesOf(graph, node.inputs[0]).has_data;
  const bool second = SourcesOf(graph, node.inputs[1]).has_data;
  if (first == second) return kNoValue;
  if (first) return node.inputs[0];
  return either ? node.inputs[1] : kNoValue;
}

// A number that is a mean over the samples at hand, and no sum. What was summed over the samples
// before has no open axis left: a mean of that, over features, is a sum over samples still. In a
// model for one number of samples no axis is open, and all micro-batches are alike: nothing is a
// mean there.
bool IsMeanOfSamples(const Graph& graph, ValueId value) {
  while (value.valid() && graph.value(value).source == ValueSource::kNode) {
    const Node& node = graph.node(graph.value(value).producer);
    const bool makes_mean = node.schema != nullptr && node.schema->mean_loss() &&
                            graph.value(value).output_index == 0 &&
                            node.attributes.String("reduction", "mean") == "mean";
    const bool is_open =
        makes_mean && !graph.value(node.inputs[0]).type.shape.ToConcrete().has_value();
    if (is_open) return true;
    // A mean over features, of what may be a mean over samples.
    const bool averages = makes_mean && node.domain.empty() && node.op == "ReduceMean";
    value = averages ? node.inputs[0] : KeepsMeanOf(graph, node);
  }
  return false;
}

// Sum and weight of a mean over tokens: exact, however unequally micro-batches have them. Where
// both are means over the samples at hand, as mean(x mask) / mean(mask), they become sums: a short
// micro-batch, or the last batch of an evaluation, would weigh as much as a full one.
absl::StatusOr<MeanParts> PartsOfMaskedMean(GraphBuilder& builder, const Node& quotient) {
  const ValueId sum = quotient.inputs[0];
  const ValueId weight = quotient.inputs[1];
  const Graph& graph = builder.graph();
  const bool are_means = IsMeanOfSamples(graph, sum) && IsMeanOfSamples(graph, weight);
  MeanParts parts{builder.Op("Reshape", {sum, builder.Ints({})}),
                  builder.Op("Reshape", {weight, builder.Ints({})})};
  if (are_means) {
    WEFT_ASSIGN_OR_RETURN(const ValueId samples,
                          SamplesAtHand(builder, graph.value(sum).type.dtype));
    parts.sum = builder.Op("Mul", {parts.sum, samples});
    parts.weight = builder.Op("Mul", {parts.weight, samples});
  }
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
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
  if (const Node* const quotient = MaskedMean(graph, *loss)) {
    const auto is_scalar = [&graph](ValueId id) {
      const std::optional<Shape> shape = graph.value(id).type.shape.ToConcrete();
      return shape.has_value() && shape->num_elements() == 1;
    };
    if (is_scalar(quotient->inputs[0]) && is_scalar(quotient->inputs[1])) {
      return PartsOfMaskedMean(builder, *quotient);
    }
  }
  return PartsOfSampleMean(builder, *loss);
}

// The words of a name in small letters: "Loss/mean_1" has loss, mean and 1.
std::vector<std::string> WordsOf(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      words.back() += absl::ascii_tolower(static_cast<unsigned char>(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.size() > 1 && words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

bool LossSpec::is_output() const { return absl::StartsWith(kind, kOutputPrefix); }

absl::StatusOr<std::string> LossOutputByName(const Graph& model) {
  constexpr char kLossWord[] = "loss";
  std::vector<std::string> alone, longer;
  for (const ValueId output : model.outputs()) {
    const ValueDef& value = model.value(output);
    if (value.type.kind != ValueKind::kTensor || !IsFloatingPoint(value.type.dtype)) continue;
    const std::optional<Shape> shape = value.type.shape.ToConcrete();
    if (!shape.has_value() || shape->num_elements() != 1) continue;
    const std::vector<std::string> words = WordsOf(value.name);
    if (words.front() != kLossWord && words.back() != kLossWord) continue;
    (words.size() == 1 ? alone : longer).push_back(value.name);
  }
  const std::vector<std::string>& found = alone.empty() ? longer : alone;
  if (found.empty()) return std::string();
  if (found.size() == 1) return found.front();
  return absl::InvalidArgumentError(absl::StrCat(
      "the names of several outputs say that they are the loss: ", absl::StrJoin(found, ", "),
      "; give one of them, as --loss output:", found.front(), ", or another loss"));
}

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

ValueId LabelsInput(Graph& graph, const ValueType& type) {
  if (const std::optional<ValueId> known = graph.FindValue(kLabelsInput); known.has_value()) {
    if (graph.value(*known).source == ValueSource::kInput) return *known;
    graph.RenameValue(*known, absl::StrCat(kLabelsInput, "/model"));
  }
  return graph.AddInput(kLabelsInput, type);
}

ValueId LabelsLike(GraphBuilder& builder, ValueId prediction) {
  return LabelsInput(builder.graph(), builder.type(prediction));
}

ValueId SumOfAll(GraphBuilder& builder, ValueId x) {
  return builder.Op("ReduceSum", {x}, {{"keepdims", int64_t{0}}});
}

ValueId SampleCount(GraphBuilder& builder, ValueId x) {
  const ValueId rows = builder.Op("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const DType dtype = builder.type(x).dtype;
  return builder.Op("Squeeze", {builder.Op("Cast", {rows}, {{"to", static_cast<int64_t>(dtype)}})});
}

std::vector<std::string> LossKinds() {
  std::vector<std::string> kinds = ElementwiseLossKinds();
  kinds.push_back("sequence_cross_entropy");
  kinds.push_back("softmax_cross_entropy");
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

absl::StatusOr<LossSpec> ParseLoss(const std::string& text) {
  LossSpec spec;
  spec.kind = text;
  const std::vector<std::string> kinds = LossKinds();
  if (std::find(kinds.begin(), kinds.end(), text) != kinds.end()) return spec;
  if (absl::StartsWith(text, kOutputPrefix) && text.size() > sizeof(kOutputPrefix) - 1) return spec;
  return absl::InvalidArgumentError(absl::StrCat("no loss '", text, "'", DidYouMean(text, kinds),
                                                 "; there are ", absl::StrJoin(kinds, ", "),
                                                 " and output:NAME"));
}

absl::StatusOr<MeanParts> AddLoss(GraphBuilder& builder, const LossSpec& spec) {
  if (absl::StartsWith(spec.kind, kOutputPrefix)) {
    return GraphLoss(builder, spec.kind.substr(sizeof(kOutputPrefix) - 1));
  }
  return IsClassification(spec) ? AddCrossEntropy(builder, spec)
                                : AddElementwiseLoss(builder, spec);
}

}  // namespace weft
