// LARS (You et al., 2017): gradient descent whose steps have a length by that of the weights.
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/trust_ratio.h"

namespace weft {
namespace {

ValueId AddLars(UpdateSite& site) {
  const ValueId ratio = AddTrustRatio(site, site.gradient(),
                                      {{"coefficient", site.Option("trust-coefficient")},
                                       {"weight_decay", site.weight_decay()},
                                       {"epsilon", site.Option("epsilon")}});
  Attributes attributes = {{"weight_decay", site.weight_decay()}};
  if (site.Option("momentum") > 0) {
    attributes.Set("momentum", site.Option("momentum"));
    attributes.Set("nesterov", int64_t{0});
  }
  return site.AddOp("SgdUpdate", std::move(attributes), {{"scale", ratio}});
}

WEFT_REGISTER_OPTIMIZER({.name = "lars",
                         .help = "momentum with steps scaled by the norm of each parameter",
                         .learning_rate = 0.01,
                         .options = {Momentum(0.9),
                                     Epsilon(1e-8),
                                     {.name = "trust-coefficient",
                                      .usual = 0.001,
                                      .help = "norm of a step relative to the norm of the weights",
                                      .high = 1e6}},
                         .slots = {{.name = "velocity", .only_with = "momentum"}},
                         .update = AddLars});

}  // namespace
}  // namespace weft
