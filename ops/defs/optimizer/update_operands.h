// What the declarations and kernels of optimizer updates share: operand 0 is the parameter w, 1 its
// gradient g; every other operand is a scalar or state of w's type and shape; every output has
// them.
#ifndef WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_
#define WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_

#include <string>
#include <vector>

#include "graph/op_schema.h"

namespace weft {

// A schema with the inputs w, g and learning_rate.
OpSchema UpdateOp(std::string name);

// All inputs but `scalars` have the type of w, the scalars one element; all outputs become like w.
absl::Status InferUpdate(InferenceContext& context, const std::vector<int>& scalars);
// State that may be absent: input `input` and output `output` come together or not at all.
absl::Status CheckStatePair(const InferenceContext& context, int input, int output);

// Every operand but the scalars has the factors of w: an update runs on any shard of it.
ShardingFn UpdateRule(std::vector<int> scalars);

// A float attribute as it was written: the double nearest to the shortest decimal that names the
// float32 (0.999, not 0.99900001), since 1 - 0.999 has only four digits right otherwise.
double Hyperparameter(const Attributes& attributes, const std::string& name, double fallback);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_OPTIMIZER_UPDATE_OPERANDS_H_
