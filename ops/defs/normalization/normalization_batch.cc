// BatchNormalization, of samples given or with given statistics, and its gradient.
//
// ai.weft::BatchNormalizationGrad(dY, X, scale, mean, var) -> dX, dScale, dB, each optional, has
// the attributes epsilon and training_mode. In training mode the statistics are those of X,
// computed again, and mean and var are absent.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool IsTraining(const Attributes& attributes) { return attributes.Int("training_mode", 0) != 0; }

// ---- Shapes.

absl::Status CheckPerChannel(const InferenceContext& context, const SymbolicShape& x, int first,
                             int last) {
  for (int i = first; i <= last; ++i) {
    if (!context.HasInput(i) || !context.InputShape(i).has_rank()) continue;
    const SymbolicShape& shape = context.InputShape(i);
    const bool fits =
        shape.rank() == 1 && (!x.has_rank() || !x.dim(1).is_known() || !shape.dim(0).is_known() ||
                              shape.dim(0).size() == x.dim(1).size());
    if (fits) continue;
    return context.Error(absl::StrCat("input ", i, " has shape ", shape.ToString(),
                                      ", expected one value per channel of X ", x.ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckHasChannels(const InferenceContext& context, const SymbolicShape& x) {
  if (!x.has_rank() || x.rank() >= 2) return absl::OkStatus();
  return context.Error(
      absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, ...]"));
}

absl::Status InferBatchNormalization(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  WEFT_RETURN_IF_ERROR(CheckHasChannels(context, x));
  WEFT_RETURN_IF_ERROR(CheckPerChannel(context, x, 1, 4));
  if (!IsTraining(context.attributes()) && (context.HasOutput(1) || context.HasOutput(2))) {
    return context.Error("running statistics are outputs in training_mode only");
  }
  context.SetOutput(0, context.InputType(0));
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(i + 2));
  }
  return absl::OkStatus();
}

absl::Status InferBatchNormalizationGradient(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& x = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckHasChannels(context, x));
  WEFT_RETURN_IF_ERROR(CheckPerChannel(context, x, 2, 4));
  if (!IsTraining(context.attributes()) && (!context.HasInput(3) || !context.HasInput(4))) {
    return context.Error("mean and var are needed unless training_mode is 1");
  }
  if (context.HasOutput(0)) context.SetOutput(0, context.InputType(1));
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(2));
  }
  return absl::OkStatus();
}

// ---- Gradient. In training the running statistics are state, not part of the loss.

// Of given statistics, from those of scale and bias: with i = 1 / sqrt(var + epsilon),
// dmean = -scale i dB and dvar = -scale i^2 dscale / 2.
void SetStatisticsGradients(GradientContext& context, ValueId dscale, ValueId dbias) {
  GraphBuilder& g = context.builder();
  const DType dtype = g.type(context.Input(1)).dtype;
  const Algebra a(g, context.Input(1));
  const double epsilon = context.node().attributes.Float("epsilon", 1e-5f);
  const ValueId variance = AsDType(g, context.Input(4), dtype);
  const ValueId inverse = a.Of("Reciprocal", a.Of("Sqrt", a.Add(epsilon, variance)));
  const ValueId slope = a.Mul(-1, a.Mul(context.Input(1), inverse));
  const DType own = g.type(context.Input(3)).dtype;
  if (context.NeedsInputGradient(3)) {
    context.SetInputGradient(3, AsDType(g, a.Mul(slope, dbias), own));
  }
  if (context.NeedsInputGradient(4)) {
    const ValueId dvar = a.Mul(0.5, a.Mul(a.Mul(slope, inverse), dscale));
    context.SetInputGradient(4, AsDType(g, dvar, own));
  }
}

absl::Status BatchNormalizationGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Attributes& attributes = context.node().attributes;
  std::vector<ValueId> inputs = {dy, context.Input(0), context.Input(1)};
  if (!IsTraining(attributes)) {
    inputs.push_back(context.Input(3));
    inputs.push_back(context.Input(4));
  }
  const bool given = !IsTraining(attributes);
  const bool of_mean = given && context.NeedsInputGradient(3);
  const bool of_variance = given && context.NeedsInputGradient(4);
  const std::vector<bool> wanted = {context.NeedsInputGradient(0),
                                    context.NeedsInputGradient(1) || of_variance,
                                    context.NeedsInputGradient(2) || of_mean};
  const std::vector<ValueId> gradients =
      g.Ops(std::string(kWeftDomain), "BatchNormalizationGrad", std::move(inputs),
            {{"epsilon", attributes.Float("epsilon", 1e-5f)},
             {"training_mode", attributes.Int("training_mode", 0)}},
            wanted);
  WEFT_RETURN_IF_ERROR(g.status());
  for (int i = 0; i < 3; ++i) {
    if (context.NeedsInputGradient(i)) context.SetInputGradient(i, gradients[i]);
  }
  if (of_mean || of_variance) {
    SetStatisticsGradients(context, of_variance ? gradients[1] : kNoValue,
                           of_mean ? gradients[2] : kNoValue);
  }
  return g.status();
}

// ---- Sharding: channels stand alone. In training mode a channel's samples are needed whole.

class BatchFactors {
 public:
  BatchFactors(FactorRuleBuilder& rule, const Shape& x, FactorKind samples) {
    for (int i = 0; i < x.rank(); ++i) {
      x_.push_back(rule.Factor(x.dim(i), i == 1 ? FactorKind::kParallel : samples));
    }
  }
  const std::vector<int>& x() const { return x_; }
  std::vector<int> channel() const { return {x_[1]}; }

 private:
  std::vector<int> x_;
};

absl::StatusOr<FactorRule> BatchNormalizationRule(const NodeView& view) {
  const bool training = IsTraining(view.attributes());
  FactorRuleBuilder rule;
  const BatchFactors factors(rule, view.InputShape(0),
                             training ? FactorKind::kWhole : FactorKind::kParallel);
  rule.Input(factors.x());
  for (int i = 1; i < view.num_inputs(); ++i) rule.Input(factors.channel());
  rule.Output(factors.x());
  for (int i = 1; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors.channel() : std::vector<int>{});
  }
  // (X - mean) scale / deviation + B.
  if (!training) return rule.Linear({{0, 2, 3}, {1, 2}}).Build();
  if (view.HasOutput(1) || view.HasOutput(2)) return rule.Build();
  return rule.Linear({{1, 2}}).Build();
}

absl::StatusOr<FactorRule> BatchNormalizationGradientRule(const NodeView& view) {
  const bool training = IsTraining(view.attributes());
  const bool sums = view.HasOutput(1) || view.HasOutput(2);
  FactorRuleBuilder rule;
  const BatchFactors factors(rule, view.InputShape(1),
                             training ? FactorKind::kWhole
                             : sums   ? FactorKind::kSum
                                      : FactorKind::kParallel);
  rule.Input(factors.x()).Input(factors.x());
  for (int i = 2; i < view.num_inputs(); ++i) {
    rule.Input(view.HasInput(i) ? factors.channel() : std::vector<int>{});
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (!view.HasOutput(i)) {
      rule.Output({});
    } else {
      rule.Output(i == 0 ? factors.x() : factors.channel());
    }
  }
  return rule.Linear({{0}}).Build();
}

// ---- The whole batch: mean and variance of all replicas' samples, computed in two passes (the
// mean, then the squared distances from it) in float32 or more, and then the node as with given
// statistics. (SyncBatchNorm of PyTorch.)

// All axes but that of the channels, and how many elements of the whole batch a channel has.
struct ChannelSums {
  std::vector<int64_t> axes;
  double count = 0;
};

ChannelSums ChannelSumsOf(const Shape& x, const BatchPart& part) {
  ChannelSums sums;
  double own = 1;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (axis == 1) continue;
    sums.axes.push_back(axis);
    own *= static_cast<double>(x.dim(static_cast<int>(axis)));
  }
  sums.count = own / static_cast<double>(part.samples) * static_cast<double>(part.all_samples);
  return sums;
}

struct Statistics {
  ValueId mean;
  ValueId variance;  // of the population
};

// At least in single precision.
Statistics AddStatistics(GraphBuilder& g, ValueId x, const BatchPart& part) {
  const DType own = g.type(x).dtype;
  const DType wide = own == DType::kFloat64 ? own : DType::kFloat32;
  const ChannelSums sums = ChannelSumsOf(*g.type(x).shape.ToConcrete(), part);
  const ValueId axes = g.Ints(sums.axes);
  const ValueId values = AsDType(g, x, wide);
  const ValueId share = g.Scalar(wide, 1 / sums.count);
  const auto mean_of = [&](ValueId sum) {
    return g.Op("Mul", {g.WeftOp("SumOverReplicas", {sum}), share});
  };
  const ValueId mean = mean_of(g.Op("ReduceSum", {values, axes}));
  const ValueId distances = g.Op("Sub", {values, mean});
  const ValueId variance =
      mean_of(g.Op("ReduceSumSquare", {distances, axes}, {{"keepdims", int64_t{0}}}));
  return {g.Op("Squeeze", {mean, axes}), variance};
}

// momentum running + (1 - momentum) statistic.
ValueId AddRunning(GraphBuilder& g, ValueId running, ValueId statistic, double momentum) {
  const DType dtype = g.type(running).dtype;
  statistic = AsDType(g, statistic, dtype);
  if (momentum == 0) return statistic;
  const ValueId kept = g.Op("Mul", {running, g.Scalar(dtype, momentum)});
  const ValueId added = g.Op("Mul", {statistic, g.Scalar(dtype, 1 - momentum)});
  return g.Op("Add", {kept, added});
}

absl::StatusOr<std::vector<ValueId>> BatchNormalizationOfWholeBatch(ExpandContext& context,
                                                                    const BatchPart& part) {
  const Node& node = context.node();
  if (!IsTraining(node.attributes)) return std::vector<ValueId>();
  GraphBuilder& g = context.builder();
  const Statistics statistics = AddStatistics(g, node.inputs[0], part);
  const DType own = g.type(node.inputs[0]).dtype;
  std::vector<ValueId> outputs = {
      g.Op("BatchNormalization",
           {node.inputs[0], node.inputs[1], node.inputs[2], AsDType(g, statistics.mean, own),
            AsDType(g, statistics.variance, own)},
           {{"epsilon", node.attributes.Float("epsilon", 1e-5f)}}),
      kNoValue, kNoValue};
  const double momentum = node.attributes.Float("momentum", 0.9f);
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const ValueId statistic = i == 1 ? statistics.mean : statistics.variance;
    outputs[i] = AddRunning(g, node.inputs[i + 2], statistic, momentum);
  }
  return outputs;
}

// Those of the node that the gradient's forward node became, which has its name and "/" in front of
// its own (graph/expansion.h), and reads the same X and scale. Another node may read them too, with
// statistics that it is given.
absl::StatusOr<Statistics> StatisticsOfForward(const ExpandContext& context) {
  const Graph& graph = context.graph();
  const Node& node = context.node();
  const std::string prefix = absl::StrCat(node.origin.forward_node, "/");
  const Node* forward = nullptr;
  for (const NodeId id : graph.node_ids()) {
    const Node& other = graph.node(id);
    const bool is_given = other.domain.empty() && other.op == "BatchNormalization" &&
                          other.phase == Phase::kForward && !IsTraining(other.attributes);
    const bool is_forward = is_given && absl::StartsWith(other.name, prefix) &&
                            other.inputs[0] == node.inputs[1] && other.inputs[1] == node.inputs[2];
    if (is_forward) forward = &other;  // the last: it is newer than any node of the model
  }
  if (forward == nullptr) {
    return absl::InternalError(absl::StrCat(
        "neither its forward node '", node.origin.forward_node,
        "' is in the graph, nor one that this became with statistics of the whole batch"));
  }
  return Statistics{forward->inputs[3], forward->inputs[4]};
}

// With M elements of a channel in the whole batch, i = 1 / sqrt(var + epsilon) and x^ = (X - mean)
// i: dX = scale i (dY - (dB + x^ dScale) / M), where dB = sum dY and dScale = sum dY x^ are those
// of the whole batch. The first term is dX with given statistics; the others are a normalization
// with the scale (scale i dScale / M) and the bias (scale i dB / M).
absl::StatusOr<std::vector<ValueId>> BatchNormalizationGradientOfWholeBatch(ExpandContext& context,
                                                                            const BatchPart& part) {
  const Node& node = context.node();
  if (!IsTraining(node.attributes)) return std::vector<ValueId>();
  // A forward node that is still there takes its own statistics.
  const bool has_forward = context.graph().FindNode(node.origin.forward_node).has_value();
  if (has_forward) return std::vector<ValueId>();
  WEFT_ASSIGN_OR_RETURN(const Statistics statistics, StatisticsOfForward(context));
  GraphBuilder& g = context.builder();
  const ValueId x = node.inputs[1];
  const ValueId scale = node.inputs[2];
  const Attributes epsilon = {{"epsilon", node.attributes.Float("epsilon", 1e-5f)}};
  const bool has_dx = !node.outputs.empty() && node.outputs[0].valid();
  std::vector<ValueId> gradients =
      g.Ops(std::string(kWeftDomain), "BatchNormalizationGrad",
            {node.inputs[0], x, scale, statistics.mean, statistics.variance}, epsilon,
            {has_dx, true, true});
  if (!has_dx || !g.status().ok()) return gradients;
  const std::vector<ValueId> sums = g.Ops(std::string(kWeftDomain), "SumOverReplicas",
                                          {gradients[1], gradients[2]}, {}, {true, true});
  WEFT_RETURN_IF_ERROR(g.status());
  const double count = ChannelSumsOf(*g.type(x).shape.ToConcrete(), part).count;
  const Algebra a(g, scale);
  const ValueId deviation =
      a.Of("Sqrt", a.Add(node.attributes.Float("epsilon", 1e-5f), statistics.variance));
  const ValueId slope = a.Mul(1 / count, a.Div(scale, deviation));
  const ValueId mean_part =
      g.Op("BatchNormalization",
           {x, a.Mul(slope, sums[0]), a.Mul(slope, sums[1]), statistics.mean, statistics.variance},
           epsilon);
  gradients[0] = g.Op("Sub", {gradients[0], mean_part});
  return gradients;
}

Cost BatchNormalizationCost(const NodeView& view) {
  const double per_element = IsTraining(view.attributes()) ? 6 : 2;
  return {per_element * static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}
Cost BatchNormalizationGradientCost(const NodeView& view) {
  return {12.0 * static_cast<double>(view.InputShape(1).num_elements()), OperandBytes(view)};
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("BatchNormalization")
                     .Input("X", kFloatTypes)
                     .Input("scale", kFloatTypes)
                     .Learnable()
                     .Input("B", kFloatTypes)
                     .Learnable()
                     .Input("input_mean", kFloatTypes)
                     .NeverLearnable()
                     .Input("input_var", kFloatTypes)
                     .NeverLearnable()
                     .Output("Y")
                     .OptionalOutput("running_mean")
                     .OptionalOutput("running_var")
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("momentum", AttributeType::kFloat)
                     .Attr("training_mode", AttributeType::kInt)
                     .Infer(InferBatchNormalization)
                     .Gradient(BatchNormalizationGradient)
                     .Sharding(BatchNormalizationRule)
                     .WholeBatch(BatchNormalizationOfWholeBatch)
                     .CostOf(BatchNormalizationCost));

WEFT_REGISTER_OP(OpSchema::Weft("BatchNormalizationGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("X", kFloatTypes)
                     .Input("scale", kFloatTypes)
                     .OptionalInput("mean", kFloatTypes)
                     .OptionalInput("var", kFloatTypes)
                     .OptionalOutput("dX")
                     .OptionalOutput("dScale")
                     .OptionalOutput("dB")
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("training_mode", AttributeType::kInt)
                     .Infer(InferBatchNormalizationGradient)
                     .Sharding(BatchNormalizationGradientRule)
                     .WholeBatch(BatchNormalizationGradientOfWholeBatch)
                     .CostOf(BatchNormalizationGradientCost));

}  // namespace weft
