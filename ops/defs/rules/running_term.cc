// ai.weft::RunningTerm(X) -> Y, weight: what one micro-batch adds to a running average that is
// updated micro-batch after micro-batch, avg = decay avg + share X: with k micro-batches of the
// step to come, its weight is share decay^k, and Y = weight X. After the step, the average is
// (1 - sum of weights) avg + sum of Y where 1 - decay is the sum of all shares of one micro-batch.
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferRunningTerm(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  if (context.HasOutput(1)) context.SetOutput(1, context.InputType(0).dtype, Shape{});
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> RunningTermRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  rule.Input(factors).Output(factors);
  if (view.num_outputs() > 1) rule.Output({});
  return rule.Build();
}

// The statistics of the whole batch count once: each micro-batch has an equal part of them.
absl::StatusOr<std::vector<ValueId>> RunningTermOfWholeBatch(ExpandContext& context,
                                                             const BatchPart& part) {
  const Node& node = context.node();
  const float share = node.attributes.Float("share", 1);
  const bool has_weight = node.outputs.size() > 1 && node.outputs[1].valid();
  return context.builder().Ops(
      std::string(kWeftDomain), "RunningTerm", {node.inputs[0]},
      {{"decay", 1.0f}, {"share", share / static_cast<float>(part.micro_batches)}},
      {true, has_weight});
}

WEFT_REGISTER_OP(OpSchema::Weft("RunningTerm")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .OptionalOutput("weight")
                     .Attr("decay", AttributeType::kFloat, /*required=*/true)
                     .Attr("share", AttributeType::kFloat, /*required=*/true)
                     .Infer(InferRunningTerm)
                     .NoGradient("running statistics end a step")
                     .Sharding(RunningTermRule)
                     .WholeBatch(RunningTermOfWholeBatch)
                     .CostOf(FlopsPerElement(1))
                     .Stateful());

}  // namespace
}  // namespace weft
