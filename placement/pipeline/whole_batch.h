// Nodes that mix samples, computed with the samples of all replicas. Internal to placement/.
#ifndef WEFT_PLACEMENT_PIPELINE_WHOLE_BATCH_H_
#define WEFT_PLACEMENT_PIPELINE_WHOLE_BATCH_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "placement/graph_views/micro_batches.h"

namespace weft {

// The forward nodes of a logical training graph that mix samples and can sum over replicas, by name
// (FindBatchMixing, which `samples` is for). InvalidArgument where that cannot be told.
absl::StatusOr<std::set<std::string>> NodesOverReplicas(const Graph& graph, int64_t samples,
                                                        NodeEvaluator& evaluator);

// Replaces these forward nodes, those that read what they make and their gradients by what their
// OpSchema::whole_batch builds, for Plan::whole_batch: replicas sum over their samples in the
// middle of the micro-batch, of which each has one at most. The graph has concrete shapes for
// `part.samples` samples, and stages. Names of outputs stay.
absl::Status ComputeOverReplicas(Graph& sized, const std::set<std::string>& nodes,
                                 const BatchPart& part);

// InvalidArgument where a replica has several micro-batches: their sums would have to wait for each
// other.
absl::Status CheckOneMicroBatchEach(const BatchSplit& split, const Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_WHOLE_BATCH_H_
