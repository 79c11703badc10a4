#include "ops/defs/optimizer/trust_ratio.h"

#include <utility>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

// From two squared norms, element by element: coefficient |w| / (|u| + weight_decay |w| + epsilon),
// or 1 where one of the norms is zero. The coefficient is 1 when absent.
WEFT_REGISTER_OP(OpSchema::Weft("TrustRatio")
                     .Input("w_square", kUpdateTypes)
                     .Input("u_square", kUpdateTypes)
                     .Output("ratio")
                     .Attr("coefficient", AttributeType::kFloat)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferBroadcast)
                     .NoGradient("optimizers end a step")
                     .Sharding(ElementwiseRule));

}  // namespace

ValueId AddTrustRatio(UpdateSite& site, ValueId direction, Attributes attributes) {
  GraphBuilder& builder = site.builder();
  const Attributes all = {{"keepdims", int64_t{0}}};
  const ValueId w_square = builder.Op("ReduceSumSquare", {site.weight()}, all);
  const ValueId u_square = builder.Op("ReduceSumSquare", {direction}, all);
  return builder.WeftOp("TrustRatio", {w_square, u_square}, std::move(attributes));
}

}  // namespace weft
