// SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss, their backward kernels, and what training
// needs beside them: the weight of a loss and the count of right answers.
//
// Operands: scores [N,C,d...], labels [N,d...], weights [C]. With reduction "mean" the sum of the
// weighted losses is divided by the sum of the weights of the labels; ignored labels weigh nothing.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string Reduction(const Attributes& attributes) {
  return attributes.String("reduction", "mean");
}

// Labels must have the shape of the scores without axis 1.
absl::Status CheckLabels(const InferenceContext& context, const SymbolicShape& scores,
                         const SymbolicShape& labels) {
  if (scores.has_rank() && scores.rank() < 2) {
    return context.Error(absl::StrCat("scores have shape ", scores.ToString(),
                                      ", expected [samples, classes, ...]"));
  }
  if (!scores.has_rank() || !labels.has_rank()) return absl::OkStatus();
  bool fits = labels.rank() == scores.rank() - 1;
  for (int d = 0; fits && d < labels.rank(); ++d) {
    const Dim& score = scores.dim(d == 0 ? 0 : d + 1);
    fits = !score.is_known() || !labels.dim(d).is_known() || score == labels.dim(d);
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("scores ", scores.ToString(),
                                    " want labels of the shape of the "
                                    "scores without axis 1 (the classes), got ",
                                    labels.ToString()));
}

absl::Status CheckReduction(const InferenceContext& context) {
  const std::string reduction = Reduction(context.attributes());
  if (reduction == "none" || reduction == "sum" || reduction == "mean") return absl::OkStatus();
  return context.Error(
      absl::StrCat("attribute reduction is '", reduction, "', expected none, sum or mean"));
}

absl::Status CheckWeights(const InferenceContext& context, const SymbolicShape& scores, int input) {
  if (!context.HasInput(input)) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {input - 2, input}));
  const SymbolicShape& weights = context.InputShape(input);
  if (!weights.has_rank() || !scores.has_rank()) return absl::OkStatus();
  const Dim& classes = scores.dim(1);
  const bool fits = weights.rank() == 1 && (!classes.is_known() || !weights.dim(0).is_known() ||
                                            classes == weights.dim(0));
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("weights ", weights.ToString(), " do not fit scores ",
                                    scores.ToString(), ", expected [", classes.ToString(), "]"));
}

absl::Status InferLoss(InferenceContext& context) {
  const ValueType& scores = context.InputType(0);
  const SymbolicShape& labels = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckReduction(context));
  WEFT_RETURN_IF_ERROR(CheckLabels(context, scores.shape, labels));
  WEFT_RETURN_IF_ERROR(CheckWeights(context, scores.shape, 2));
  const bool none = Reduction(context.attributes()) == "none";
  context.SetOutput(0, scores.dtype, none ? labels : SymbolicShape(Shape{}));
  if (context.HasOutput(1)) context.SetOutput(1, scores);
  return absl::OkStatus();
}

// The samples' axes: split freely when every sample's loss stands alone, summed over with "sum"; a
// mean needs the weights of all samples, so it is not split (see MeanPartsOf).
FactorKind SampleKind(const NodeView& view) {
  const std::string reduction = Reduction(view.attributes());
  if (reduction == "none") return FactorKind::kParallel;
  return reduction == "sum" ? FactorKind::kSum : FactorKind::kWhole;
}

struct LossFactors {
  std::vector<int> scores;
  std::vector<int> labels;
};

LossFactors FactorsOfLoss(FactorRuleBuilder& rule, const Shape& scores, FactorKind samples) {
  LossFactors factors;
  for (int d = 0; d < scores.rank(); ++d) {
    factors.scores.push_back(rule.Factor(scores.dim(d), d == 1 ? FactorKind::kWhole : samples));
    if (d != 1) factors.labels.push_back(factors.scores.back());
  }
  return factors;
}

ShardingFn LossRule(std::vector<std::vector<int>> linear) {
  return [linear = std::move(linear)](const NodeView& view) -> absl::StatusOr<FactorRule> {
    FactorRuleBuilder rule;
    const LossFactors factors = FactorsOfLoss(rule, view.InputShape(0), SampleKind(view));
    rule.Input(factors.scores).Input(factors.labels);
    if (view.num_inputs() > 2) rule.ReplicatedInput(view.InputShape(2));
    const bool none = Reduction(view.attributes()) == "none";
    rule.Output(none ? factors.labels : std::vector<int>());
    if (view.num_outputs() > 1) {
      rule.Output(view.HasOutput(1) ? factors.scores : std::vector<int>());
    }
    return rule.Linear(linear).Build();
  };
}

// (dy, scores, labels, weights) -> dscores. With "sum" each shard needs the one dy only.
absl::StatusOr<FactorRule> LossGradRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const FactorKind kind =
      SampleKind(view) == FactorKind::kWhole ? FactorKind::kWhole : FactorKind::kParallel;
  const LossFactors factors = FactorsOfLoss(rule, view.InputShape(1), kind);
  const bool none = Reduction(view.attributes()) == "none";
  rule.Input(none ? factors.labels : std::vector<int>());
  rule.Input(factors.scores).Input(factors.labels);
  if (view.num_inputs() > 3) rule.ReplicatedInput(view.InputShape(3));
  return rule.Output(factors.scores).Linear({{0}}).Build();
}

CostFn LossCost(int scores_input, double flops_per_score) {
  return [scores_input, flops_per_score](const NodeView& view) {
    const double elements = static_cast<double>(view.InputShape(scores_input).num_elements());
    return Cost{flops_per_score * elements, OperandBytes(view)};
  };
}

Attributes LossAttributes(const Node& node) {
  Attributes attributes = {{"reduction", Reduction(node.attributes)}};
  if (node.attributes.Has("ignore_index")) {
    attributes.Set("ignore_index", node.attributes.Int("ignore_index", 0));
  }
  return attributes;
}

// The gradient that arrives at the loss, by the backward op; the one that arrives at log_prob.
GradientFn LossGradient(const std::string& backward) {
  return [backward](GradientContext& context) {
    if (!context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& b = context.builder();
    ValueId gradient = kNoValue;
    if (const ValueId dy = context.OutputGradient(0); dy.valid()) {
      std::vector<ValueId> inputs = {dy, context.Input(0), context.Input(1)};
      if (context.Input(2).valid()) inputs.push_back(context.Input(2));
      gradient = b.WeftOp(backward, std::move(inputs), LossAttributes(context.node()));
    }
    if (context.Output(1).valid() && context.OutputGradient(1).valid()) {
      const ValueId of_log_prob = b.WeftOp(
          "LogSoftmaxGrad", {context.OutputGradient(1), context.Output(1)}, {{"axis", int64_t{1}}});
      gradient = gradient.valid() ? b.Op("Add", {gradient, of_log_prob}) : of_log_prob;
    }
    if (gradient.valid()) context.SetInputGradient(0, gradient);
    return b.status();
  };
}

// The same loss as a sum, and the sum of the labels' weights.
absl::StatusOr<MeanParts> MeanPartsOf(ExpandContext& context) {
  const Node& node = context.node();
  if (Reduction(node.attributes) != "mean") {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss has reduction '", Reduction(node.attributes), "', only 'mean' is a mean"));
  }
  GraphBuilder& b = context.builder();
  Attributes attributes = LossAttributes(node);
  Attributes weight_attributes = {{"dtype", static_cast<int64_t>(b.type(node.inputs[0]).dtype)}};
  if (attributes.Has("ignore_index")) {
    weight_attributes.Set("ignore_index", attributes.Int("ignore_index", 0));
  }
  attributes.Set("reduction", std::string("sum"));
  const ValueId sum = b.Op(node.op, node.inputs, std::move(attributes));
  std::vector<ValueId> weight_inputs(node.inputs.begin() + 1, node.inputs.end());
  const ValueId weight =
      b.WeftOp("LossWeight", std::move(weight_inputs), std::move(weight_attributes));
  WEFT_RETURN_IF_ERROR(b.status());
  return MeanParts{sum, weight};
}

OpSchema Loss(std::string name, const std::string& backward, double flops) {
  return OpSchema::Onnx(std::move(name))
      .Input("scores", kFloatTypes)
      .Input("labels", kIndexTypes)
      .OptionalInput("weights", kFloatTypes)
      .NeverLearnable()
      .Output("output")
      .Attr("ignore_index", AttributeType::kInt)
      .Attr("reduction", AttributeType::kString)
      .Infer(InferLoss)
      .Gradient(LossGradient(backward))
      .MeanLoss(MeanPartsOf)
      .CostOf(LossCost(0, flops));
}

WEFT_REGISTER_OP(Loss("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyGrad", 12)
                     .OptionalOutput("log_prob")
                     .Sharding(LossRule({})));
WEFT_REGISTER_OP(
    Loss("NegativeLogLikelihoodLoss", "NegativeLogLikelihoodGrad", 1).Sharding(LossRule({{0}})));

absl::Status InferLossGrad(InferenceContext& context) {
  const SymbolicShape& scores = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckReduction(context));
  WEFT_RETURN_IF_ERROR(CheckLabels(context, scores, context.InputShape(2)));
  WEFT_RETURN_IF_ERROR(CheckWeights(context, scores, 3));
  context.SetOutput(0, context.InputType(1));
  return absl::OkStatus();
}

OpSchema LossGrad(std::string name, double flops) {
  return OpSchema::Weft(std::move(name))
      .Input("dY", kFloatTypes)
      .Input("scores", kFloatTypes)
      .Input("labels", kIndexTypes)
      .OptionalInput("weights", kFloatTypes)
      .Output("dscores")
      .Attr("ignore_index", AttributeType::kInt)
      .Attr("reduction", AttributeType::kString)
      .Infer(InferLossGrad)
      .NoGradient("part of a gradient")
      .Sharding(LossGradRule)
      .CostOf(LossCost(1, flops));
}

// dy * weight * (softmax(scores) - one_hot(label))
WEFT_REGISTER_OP(LossGrad("SoftmaxCrossEntropyGrad", 14));
// -dy * weight at the label, 0 elsewhere
WEFT_REGISTER_OP(LossGrad("NegativeLogLikelihoodGrad", 1));

absl::Status InferLossWeight(InferenceContext& context) {
  const int64_t dtype = context.attributes().Int("dtype", static_cast<int64_t>(DType::kFloat32));
  if (dtype < 0 || dtype >= kDTypeCount) {
    return context.Error(absl::StrCat("attribute dtype is ", dtype, ", which is no element type"));
  }
  context.SetOutput(0, static_cast<DType>(dtype), SymbolicShape(Shape{}));
  return absl::OkStatus();
}

// LossWeight(labels, weights): the sum of weights[label] (1 without weights) over the labels that
// are not ignored: what a mean loss divides by.
WEFT_REGISTER_OP(OpSchema::Weft("LossWeight")
                     .Input("labels", kIndexTypes)
                     .OptionalInput("weights", kFloatTypes)
                     .Output("weight")
                     .Attr("dtype", AttributeType::kInt)
                     .Attr("ignore_index", AttributeType::kInt)
                     .Infer(InferLossWeight)
                     .NoGradient("positions and counts")
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRuleBuilder rule;
                       rule.Input(rule.Factors(view.InputShape(0), FactorKind::kSum));
                       if (view.num_inputs() > 1) rule.ReplicatedInput(view.InputShape(1));
                       return rule.Output({}).Build();
                     })
                     .CostOf(LossCost(0, 1)));

absl::Status InferCountCorrect(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLabels(context, context.InputShape(0), context.InputShape(1)));
  context.SetOutput(0, DType::kFloat32, SymbolicShape(Shape{}));
  return absl::OkStatus();
}

// CountCorrect(scores, labels): for how many samples the class with the highest score (the first
// one of several) is the label. float32.
WEFT_REGISTER_OP(OpSchema::Weft("CountCorrect")
                     .Input("scores", kFloatTypes)
                     .Input("labels", kIndexTypes)
                     .Output("count")
                     .Infer(InferCountCorrect)
                     .NoGradient("positions and counts")
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRuleBuilder rule;
                       const LossFactors factors =
                           FactorsOfLoss(rule, view.InputShape(0), FactorKind::kSum);
                       return rule.Input(factors.scores).Input(factors.labels).Output({}).Build();
                     })
                     .CostOf(LossCost(0, 1)));

}  // namespace
}  // namespace weft
