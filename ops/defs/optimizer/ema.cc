// Averages of weights over steps.
#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

// average = decay average + (1 - decay) w
WEFT_REGISTER_OP(OpSchema::Weft("EmaUpdate")
                     .Input("average", kUpdateTypes)
                     .Input("w", kUpdateTypes)
                     .Output("new_average")
                     .Attr("decay", AttributeType::kFloat, /*required=*/true)
                     .Infer(InferUpdate())
                     .NoGradient("optimizers end a step")
                     .Sharding(UpdateRule)
                     .CostOf(FlopsPerElement(3))
                     .InPlace(0, 0));

}  // namespace
}  // namespace weft
