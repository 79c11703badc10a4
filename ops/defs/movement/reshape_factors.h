// How the dimensions of two shapes of the same elements correspond: "n (h d) -> n h d".
#ifndef WEFT_OPS_DEFS_MOVEMENT_RESHAPE_FACTORS_H_
#define WEFT_OPS_DEFS_MOVEMENT_RESHAPE_FACTORS_H_

#include "graph/sharding.h"

namespace weft {

// REQUIRES: from.num_elements() == to.num_elements().
// Appends to `rule` the factors that `from` and `to` (both row-major) have in common, and writes
// which of them each dimension consists of. Both shapes are walked from the major side; where they
// have no common boundary, what is left of their dimensions becomes whole factors. A dimension of
// one that has no partner has no factors.
void AppendReshapeFactors(const Shape& from, const Shape& to, FactorRule& rule,
                          OperandFactors& from_factors, OperandFactors& to_factors);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MOVEMENT_RESHAPE_FACTORS_H_
