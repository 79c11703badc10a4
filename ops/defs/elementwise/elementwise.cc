#include "ops/defs/elementwise/elementwise.h"

#include <utility>

#include "ops/defs/rules/rules.h"

namespace weft {

OpSchema FloatFunction(std::string name, double flops) {
  return OpSchema::Onnx(std::move(name))
      .Input("X", kFloatTypes)
      .Output("Y")
      .Infer(InferLikeFirstInput)
      .Sharding(ElementwiseRule)
      .CostOf(FlopsPerElement(flops))
      .InPlace(0, 0);
}

}  // namespace weft
