// The factor of the learning rate as an op (ops/defs/optimizer/rate_schedule.h).
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

// The factor of step t = 1, 2, ... of a schedule.
WEFT_REGISTER_OP(OpSchema::Weft("RateFactor")
                     .Input("step", {DType::kInt64})
                     .Output("factor")
                     .Attr("kind", AttributeType::kString, /*required=*/true)
                     .Attr("warmup", AttributeType::kInt)
                     .Attr("total", AttributeType::kInt)
                     .Attr("every", AttributeType::kInt)
                     .Attr("gamma", AttributeType::kFloat)
                     .Attr("power", AttributeType::kFloat)
                     .Attr("end", AttributeType::kFloat)
                     .Infer([](InferenceContext& context) {
                       context.SetOutput(0, DType::kFloat32, context.InputShape(0));
                       return absl::OkStatus();
                     })
                     .NoGradient("made of step numbers alone")
                     .Sharding(ElementwiseRule));

}  // namespace
}  // namespace weft
