// Partitioner: from a logical training graph and a plan to what each rank runs. A pure function.
#ifndef WEFT_PLACEMENT_PARTITION_PARTITIONER_H_
#define WEFT_PLACEMENT_PARTITION_PARTITIONER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "graph/sharding.h"
#include "placement/graph_views/step_shape.h"

namespace weft {

// The logical graph (before partitioning, any shapes symbolic):
//   * forward and backward nodes compute one micro-batch; kData inputs have the sample on axis 0;
//   * `Accumulate` nodes carry sums over micro-batches into the step region (Phase::kUpdate);
//   * update nodes compute the variables' updates and the reports (graph outputs) from accumulated
//     values, variables and kStep inputs.
// For every rank: stages cut the graph (Send/Recv inserted, gradients follow their forward nodes,
// updates live with the variable's owner stage, which is that of its first user; other stages fetch
// the value once per step in `begin`); the tensor axis shards it by the factor rules from
// plan.tensor_shardings (conversions inserted); accumulations over the data axis become AllReduce.
// Errors name node, value and axis.
absl::StatusOr<std::vector<Partition>> PartitionStep(const Graph& graph, const Plan& plan,
                                                     const StepShape& shape,
                                                     NodeEvaluator& evaluator);

// The partitions of `ranks` alone, in that order, not checked against each other nor verified: of
// plans that are looked at and mostly thrown away.
absl::StatusOr<std::vector<Partition>> PartitionRanks(const Graph& graph, const Plan& plan,
                                                      const StepShape& shape,
                                                      std::span<const RankId> ranks,
                                                      NodeEvaluator& evaluator);

// The shardings of all values of a step.
absl::StatusOr<StepShardings> ShardingsOfStep(const Graph& graph, const Plan& plan,
                                              const StepShape& shape, NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITIONER_H_
