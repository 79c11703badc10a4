#include "placement/sharding/batch_mixing.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/node_description.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/sharding/batch_follower.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Small, so that nodes are tried fast; unequal primes, so that sizes do not agree by chance.
constexpr int64_t kFewSamples = 3;
constexpr int64_t kMoreSamples = 5;

absl::StatusOr<std::vector<MixingNode>> FindNodes(const Graph& graph, const Graph* other,
                                                  int64_t samples, NodeEvaluator& evaluator) {
  std::vector<MixingNode> found;
  BatchFollower follower(graph, samples, evaluator, found);
  if (other != nullptr) follower.CompareWith(*other, kMoreSamples);
  for (const ValueId input : graph.inputs()) {
    const bool is_data = graph.input_role(input) == InputRole::kData;
    if (is_data && ShapeOf(graph, input).rank() > 0) follower.SetPlace(input, BatchPlace::Split(0));
  }
  WEFT_RETURN_IF_ERROR(follower.Run());
  return found;
}

}  // namespace

bool BatchMixing::all_sum_over_replicas() const {
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const MixingNode& node) { return node.sums_over_replicas; });
}

BatchMixing FindBatchMixing(const Graph& graph, int64_t samples, NodeEvaluator& evaluator) {
  BatchMixing mixing;
  absl::StatusOr<Graph> few = GraphForSamples(graph, kFewSamples, evaluator);
  const absl::StatusOr<Graph> more =
      few.ok() ? GraphForSamples(graph, kMoreSamples, evaluator) : few.status();
  const bool both = few.ok() && more.ok();
  if (!both) {
    few = GraphForSamples(graph, std::max<int64_t>(1, samples), evaluator);
    if (few.ok() && samples < 2) {
      mixing.unknown = "shapes in the model fix the batch to one sample";
      mixing.one_sample = true;
      return mixing;
    }
  }
  absl::Status status = few.status();
  if (status.ok()) {
    absl::StatusOr<std::vector<MixingNode>> found =
        FindNodes(*few, both ? &*more : nullptr, both ? kFewSamples : samples, evaluator);
    status = found.status();
    if (found.ok()) mixing.nodes = *std::move(found);
  }
  if (!status.ok()) mixing.unknown = std::string(status.message());
  return mixing;
}

}  // namespace weft
