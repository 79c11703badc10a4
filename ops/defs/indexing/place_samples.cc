// ai.weft::PlaceSamples(X) -> Y: what one micro-batch has for each sample, at the samples' places
// in the step's batch: Y has room for `samples` samples, all others are zero. Sums over
// micro-batches are then the batch's samples in their order, exactly.
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferPlaceSamples(InferenceContext& context) {
  const SymbolicShape& shape = context.InputShape(0);
  if (!shape.has_rank()) {
    context.SetOutput(0, context.InputType(0).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (shape.rank() == 0) {
    return absl::InvalidArgumentError("a scalar has no samples; expected them on axis 0");
  }
  std::vector<Dim> dims = shape.dims();
  dims[0] = context.attributes().Int("samples", 0);
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> PlaceSamplesRule(const NodeView& view) {
  FactorRuleBuilder rule;
  std::vector<int> input = rule.Factors(view.InputShape(0));
  std::vector<int> output = input;
  input[0] = rule.Factor(view.InputShape(0).dim(0), FactorKind::kWhole);
  output[0] = rule.Factor(view.OutputShape(0).dim(0), FactorKind::kWhole);
  return rule.Input(input).Output(output).Build();
}

WEFT_REGISTER_OP(OpSchema::Weft("PlaceSamples")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("samples", AttributeType::kInt, /*required=*/true)
                     .Infer(InferPlaceSamples)
                     .NoGradient("it collects what metrics look at")
                     .Sharding(PlaceSamplesRule)
                     .CostOf(FlopsPerElement(1))
                     .Stateful());

}  // namespace
}  // namespace weft
