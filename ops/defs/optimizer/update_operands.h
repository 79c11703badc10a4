// What the declarations and kernels of optimizer updates share: operand 0 is the parameter w, 1 its
// gradient g; learning_rate, step and scale are one number each; every other operand is state of
// w's type and shape, and output new_X is the new value of state X.
#ifndef WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_
#define WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "graph/op_schema.h"
#include "ops/defs/optimizer/optimizer.h"

namespace weft {

inline constexpr std::initializer_list<DType> kUpdateTypes = {DType::kFloat32, DType::kFloat64};

// The schema of the op of a kind whose update is one op: inputs w, g, learning_rate, then step
// where every update reads it, then the slots; outputs new_w and the new slots, which may be
// written over the old ones; weight_decay, the kind's attributes and its options as attributes.
OpSchema UpdateOp(const OptimizerKind& kind, double flops_per_element);

// Whether an operand of this name is one number, not of w's shape.
bool IsUpdateScalar(const std::string& name);

// Checks that operands fit each other and that state comes with its new value; with `slots`, also
// that state is there which an attribute above zero needs, the one called as
// OptimizerSlot::only_with.
InferFn InferUpdate(std::vector<OptimizerSlot> slots = {});

// Every operand but the scalars has the factors of w: an update runs on any shard of it.
absl::StatusOr<FactorRule> UpdateRule(const NodeView& view);

// A float attribute as it was written: the double nearest to the shortest decimal that names the
// float32 (0.999, not 0.99900001), since 1 - 0.999 has only four digits right otherwise. The usual
// values are the optimizers' to say: an attribute that is absent is `fallback`.
double Hyperparameter(const Attributes& attributes, const std::string& name, double fallback = 0);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_
