// Gradient descent, plain, with momentum and with Nesterov's (torch.optim.SGD).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

WEFT_REGISTER_OPTIMIZER({.name = "sgd",
                         .help = "gradient descent",
                         .learning_rate = 0.01,
                         .is_linear = true,
                         .op = "SgdUpdate"});

OptimizerKind WithVelocity() {
  return {.name = "momentum",
          .help = "gradient descent with momentum",
          .learning_rate = 0.01,
          .options = {Momentum(0.9),
                      {.name = "dampening",
                       .help = "reduces the weight of a new gradient in the velocity",
                       .needs_step = true}},
          .slots = {{.name = "velocity", .only_with = "momentum"}},
          .is_linear = true,
          .op = "SgdUpdate",
          .attributes = {{"nesterov", int64_t{0}}}};
}
WEFT_REGISTER_OPTIMIZER(WithVelocity());

OptimizerKind Nesterov() {
  OptimizerKind kind = WithVelocity();
  kind.name = "nesterov";
  kind.help = "gradient descent with Nesterov's momentum";
  kind.options = {Momentum(0.9)};
  kind.attributes = {{"nesterov", int64_t{1}}};
  return kind;
}
WEFT_REGISTER_OPTIMIZER(Nesterov());

// Stochastic gradient descent, with velocity v (zeros before the first step):
//   g = scale (g + weight_decay w);  v = momentum v + (1 - dampening) g;
//   w = w - learning_rate d, where d = g + momentum v if nesterov, else v (g without velocity).
// `scale` is 1 when absent (the trust ratio of LARS and LAMB, when not). With `step`, the first
// step (1) is not dampened, as PyTorch has it, which starts with v = g.
WEFT_REGISTER_OP(OpSchema::Weft("SgdUpdate")
                     .Input("w", kUpdateTypes)
                     .Input("g", kUpdateTypes)
                     .Input("learning_rate", kUpdateTypes)
                     .NeverLearnable()
                     .OptionalInput("velocity", kUpdateTypes)
                     .OptionalInput("scale", kUpdateTypes)
                     .NeverLearnable()
                     .OptionalInput("step", {DType::kInt64})
                     .Output("new_w")
                     .OptionalOutput("new_velocity")
                     .Attr("momentum", AttributeType::kFloat)
                     .Attr("nesterov", AttributeType::kInt)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("dampening", AttributeType::kFloat)
                     .Infer(InferUpdate(WithVelocity().slots))
                     .NoGradient("optimizers end a step")
                     .Sharding(UpdateRule)
                     .CostOf(FlopsPerElement(6))
                     .InPlace(0, 0)
                     .InPlace(3, 1));

}  // namespace
}  // namespace weft
