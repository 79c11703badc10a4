// Plans drawn by a seed: any mesh of 2 to 4 ranks, any cut, any sharding.
#ifndef WEFT_TESTS_TESTING_RANDOM_PLAN_H_
#define WEFT_TESTS_TESTING_RANDOM_PLAN_H_

#include <cstdint>

#include "graph/graph.h"
#include "graph/plan.h"

namespace weft::testing {

// A plan as a person could write it for `model` (a forward graph): mesh, micro-batches, schedule,
// ZeRO stage, bucket size, reduction, stages cut at nodes drawn from the topological order (or left
// to CompletePlan), a legal Split for about half of the variables, recomputed segments in a third
// of the plans. `strict` only without a tensor axis; interleaved only without tied weights. The
// same seed gives the same plan on any machine.
Plan RandomPlan(const Graph& model, uint64_t seed);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_RANDOM_PLAN_H_
