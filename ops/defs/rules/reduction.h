// What the declarations of reductions share: signature, shapes, factors and the way back.
#ifndef WEFT_OPS_DEFS_RULES_REDUCTION_H_
#define WEFT_OPS_DEFS_RULES_REDUCTION_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"

namespace weft {

// An ONNX op reduced(data, axes) with the attributes keepdims and noop_with_empty_axes.
OpSchema Reduction(std::string name, std::initializer_list<DType> dtypes);

// Factors of the big operand's axes (`reduced_kind` for the reduced ones) and of the small one's.
struct ReduceFactors {
  std::vector<int> big;
  std::vector<int> small;
};
absl::StatusOr<ReduceFactors> FactorsOfReduce(FactorRuleBuilder& rule, const NodeView& view,
                                              const Shape& big, int axes_input,
                                              FactorKind reduced_kind);

// The rule of a reduction whose reduced axes are of this kind.
ShardingFn ReduceRule(FactorKind reduced_kind, std::vector<std::vector<int>> linear);

Cost ReduceCost(const NodeView& view);

// `small`, which has the shape of the node's output, repeated along the reduced axes of its input,
// and divided by the number of repetitions if `mean`.
ValueId BroadcastReduced(GradientContext& context, ValueId small, bool mean);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_REDUCTION_H_
