#include "training/job/batch_cuts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/node_runner.h"
#include "placement/sharding/batch_mixing.h"

namespace weft {
namespace {

// Those that the policy does not accept.
std::vector<MixingNode> RefusedNodes(const BatchMixing& mixing, const BatchPolicy& policy) {
  std::vector<MixingNode> refused;
  for (const MixingNode& node : mixing.nodes) {
    if (policy.statistics_of_micro_batches && node.sums_over_replicas) continue;
    refused.push_back(node);
  }
  return refused;
}

// "node 'a' (MatMul) pairs ... (and 3 more nodes mix samples)". A node that no replicas can share
// comes first.
std::string WhatMixes(const std::vector<MixingNode>& nodes) {
  const auto worst = std::find_if(nodes.begin(), nodes.end(),
                                  [](const MixingNode& node) { return !node.sums_over_replicas; });
  const MixingNode& named = worst == nodes.end() ? nodes.front() : *worst;
  std::string text = named.ToString();
  const size_t more = nodes.size() - 1;
  if (more == 1) absl::StrAppend(&text, " (and one more node mixes samples)");
  if (more > 1) absl::StrAppend(&text, " (and ", more, " more nodes mix samples)");
  return text;
}

// What a plan may do instead of cutting the batch.
std::string WayOut(bool one_replica, bool has_statistics) {
  std::string text =
      one_replica
          ? "take one micro-batch on one replica (tp and pp may be more than 1)"
          : "give each replica one micro-batch, so that statistics are summed over replicas";
  absl::StrAppend(&text, has_statistics
                             ? ", or accept the statistics of each micro-batch: --batch-norm micro"
                             : ", or accept that each micro-batch is mixed by itself: "
                               "--allow-batch-cut");
  return text;
}

// Whether the given plan has these limits; a plan without a mesh gets all workers as replicas.
bool Keeps(const JobSpec& spec, bool one_replica) {
  const Plan& plan = spec.plan;
  const int workers =
      static_cast<int>(plan.workers.empty() ? spec.cluster.workers.size() : plan.workers.size());
  const int replicas =
      plan.mesh.size() == 1 && !spec.search.wanted ? std::max(1, workers) : plan.mesh.data;
  if (one_replica && replicas > 1) return false;
  return plan.micro_batches == 1 || plan.micro_batches == replicas;
}

}  // namespace

absl::Status LimitBatchCuts(const Graph& graph, int64_t batch, JobSpec& spec) {
  if (spec.stored != nullptr || spec.batch_policy.allows_cuts) return absl::OkStatus();
  const int64_t samples = batch / std::max(1, spec.plan.micro_batches);
  const BatchMixing mixing = FindBatchMixing(graph, samples, CpuNodeEvaluator());
  const std::vector<MixingNode> refused = RefusedNodes(mixing, spec.batch_policy);
  if (refused.empty()) return absl::OkStatus();
  const bool has_others = std::any_of(refused.begin(), refused.end(), [](const MixingNode& node) {
    return !node.sums_over_replicas;
  });
  const bool one_replica = has_others || spec.plan.strict;
  const bool is_free =
      spec.search.default_micro_batches || (spec.search.wanted && !spec.search.keep_micro_batches);
  if (is_free) spec.plan.micro_batches = 1;
  if (!Keeps(spec, one_replica)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cutting the batch would change results: ", WhatMixes(refused), "; ",
                     WayOut(one_replica, !has_others)));
  }
  spec.plan.whole_batch = true;
  spec.search.max_replicas = one_replica ? 1 : 0;
  spec.search.batch_reason = absl::StrCat(
      one_replica ? "the batch stays whole, in one micro-batch on one replica: "
                  : "each replica has one micro-batch, and batch statistics are summed over "
                    "replicas: ",
      WhatMixes(refused));
  return absl::OkStatus();
}

}  // namespace weft
