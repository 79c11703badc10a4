#include "placement/pipeline/whole_batch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/expansion.h"
#include "placement/rules/step_skeleton.h"
#include "placement/sharding/batch_mixing.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::set<std::string>> NodesOverReplicas(const Graph& graph, int64_t samples,
                                                        NodeEvaluator& evaluator) {
  const BatchMixing mixing = FindBatchMixing(graph, samples, evaluator);
  if (!mixing.unknown.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan computes with the whole batch (whole_batch), but which nodes mix its samples is "
        "not known: ",
        mixing.unknown, "; take one replica"));
  }
  std::set<std::string> names;
  for (const MixingNode& node : mixing.nodes) {
    if (node.sums_over_replicas) names.insert(node.node);
  }
  return names;
}

absl::Status ComputeOverReplicas(Graph& sized, const std::set<std::string>& nodes,
                                 const BatchPart& part) {
  const int first_built = sized.node_capacity();
  // Of a node that reads a statistic of the whole batch, such as a running average.
  const auto reads_built = [&](const Node& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input.valid() && sized.value(input).source == ValueSource::kNode &&
             sized.value(input).producer.value >= first_built;
    });
  };
  // Forward nodes come first: their gradients read what they became.
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, sized.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = sized.node(id);
    if (!RunsPerMicroBatch(node) || node.schema == nullptr || !node.schema->whole_batch()) continue;
    if (IsForward(node) && !nodes.contains(node.name) && !reads_built(node)) continue;
    const auto build = [&](ExpandContext& context) {
      return node.schema->whole_batch()(context, part);
    };
    WEFT_RETURN_IF_ERROR(ReplaceNode(sized, id, build).status());
  }
  return absl::OkStatus();
}

absl::Status CheckOneMicroBatchEach(const BatchSplit& split, const Plan& plan) {
  for (int replica = 0; replica < plan.mesh.data; ++replica) {
    const size_t own = split.OfReplica(plan, replica).size();
    if (own <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan computes with the whole batch, so that each replica must run its part in one "
        "micro-batch, but replica ",
        replica, " has ", own, "; give ", plan.mesh.data,
        " micro-batches, or accept statistics of each: --batch-norm micro"));
  }
  return absl::OkStatus();
}

}  // namespace weft
