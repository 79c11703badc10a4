// Reverse-mode differentiation: a walk over the schemas' gradient rules. (Reverse accumulation:
// Griewank and Walther, Evaluating Derivatives, 2008.)
#ifndef WEFT_TRAINING_GRAPH_AUTODIFF_H_
#define WEFT_TRAINING_GRAPH_AUTODIFF_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// Adds nodes of Phase::kBackward that compute the gradients of the seeded values with respect to
// `wanted` (variables or any other floating values), and returns these by value. A wanted value
// that no seed depends on has no entry. Unimplemented when an op on a path has no gradient rule;
// the message prints the path from the wanted value to the seed.
absl::StatusOr<std::map<ValueId, ValueId>> AddGradients(Graph& graph,
                                                        const std::vector<GradientSeed>& seeds,
                                                        const std::vector<ValueId>& wanted);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_AUTODIFF_H_
