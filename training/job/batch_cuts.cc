#include "training/job/batch_cuts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/sharding/batch_mixing.h"

namespace weft {
namespace {

// Of the given plan; one without a mesh gets all workers as replicas, or is searched for.
int ReplicasOf(const JobSpec& spec) {
  const Plan& plan = spec.plan;
  if (plan.mesh.size() > 1 || spec.search.wanted) return plan.mesh.data;
  const size_t workers = plan.workers.empty() ? spec.cluster.workers.size() : plan.workers.size();
  return std::max(1, static_cast<int>(workers));
}

// Samples of a micro-batch of the given plan when it is complete and cuts the batch.
int64_t SamplesOfMicroBatch(const JobSpec& spec, int64_t batch) {
  Plan plan = spec.plan;
  plan.mesh.data = std::max(1, ReplicasOf(spec));
  const int count = spec.search.wanted ? plan.micro_batches : CompleteMicroBatchCount(plan);
  return batch / std::max(1, count);
}

bool Fits(const Graph& graph, int64_t samples) {
  return GraphForSamples(graph, samples, CpuNodeEvaluator()).ok();
}

// Shapes may allow one number of samples only: that of the plan's micro-batches is tried, then
// those that the batch can be cut into equally.
BatchMixing LookAt(const Graph& graph, int64_t batch, const JobSpec& spec) {
  const int64_t planned = SamplesOfMicroBatch(spec, batch);
  BatchMixing mixing = FindBatchMixing(graph, planned, CpuNodeEvaluator());
  for (int64_t samples = batch; samples >= 1; --samples) {
    if (mixing.unknown.empty() || mixing.one_sample) break;
    if (batch % samples != 0 || samples == planned || !Fits(graph, samples)) continue;
    BatchMixing other = FindBatchMixing(graph, samples, CpuNodeEvaluator());
    if (other.unknown.empty() || other.one_sample) mixing = std::move(other);
  }
  return mixing;
}

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

// What a plan may do instead of cutting the batch. `fits_whole`: shapes allow the whole batch.
std::string WayOut(bool one_replica, bool has_statistics, bool fits_whole) {
  std::string text =
      !fits_whole ? "shapes in the model do not allow the whole batch in one micro-batch"
      : one_replica
          ? "take one micro-batch on one replica (tp and pp may be more than 1)"
          : "give each replica one micro-batch, so that statistics are summed over replicas";
  absl::StrAppend(&text, fits_whole ? ", or accept " : "; accept ",
                  has_statistics ? "the statistics of each micro-batch: --batch-norm micro"
                                 : "that each micro-batch is mixed by itself: --allow-batch-cut");
  return text;
}

// Whether the given plan has these limits.
bool Keeps(const JobSpec& spec, bool one_replica) {
  const int replicas = ReplicasOf(spec);
  if (one_replica && replicas > 1) return false;
  return spec.plan.micro_batches == 1 || spec.plan.micro_batches == replicas;
}

}  // namespace

absl::Status LimitBatchCuts(const Graph& graph, int64_t batch, JobSpec& spec, bool evaluation) {
  if (spec.stored != nullptr) return absl::OkStatus();
  if (spec.batch_policy.allows_cuts) {
    spec.plan.whole_batch = spec.plan.whole_batch && Keeps(spec, spec.plan.strict);
    return absl::OkStatus();
  }
  const BatchMixing mixing = LookAt(graph, batch, spec);
  if (mixing.one_sample) {
    spec.plan.whole_batch = false;
    spec.search.batch_reason =
        absl::StrCat("each micro-batch has one sample, and what mixes samples was not looked for: ",
                     mixing.unknown);
    return absl::OkStatus();
  }
  const bool is_unknown = !mixing.unknown.empty();
  const std::vector<MixingNode> refused = RefusedNodes(mixing, spec.batch_policy);
  if (refused.empty() && !is_unknown) {
    // What a plan file says, a flag overrides.
    if (!mixing.nodes.empty()) spec.plan.whole_batch = false;
    return absl::OkStatus();
  }
  const std::string cause =
      is_unknown ? absl::StrCat("whether nodes mix its samples is not known: ", mixing.unknown)
                 : WhatMixes(refused);
  const bool has_others =
      is_unknown || std::any_of(refused.begin(), refused.end(),
                                [](const MixingNode& node) { return !node.sums_over_replicas; });
  const bool one_replica = has_others || spec.plan.strict || evaluation;
  const bool is_free =
      spec.search.default_micro_batches || (spec.search.wanted && !spec.search.keep_micro_batches);
  if (is_free) spec.plan.micro_batches = 1;
  // Else the limit would leave nothing that runs, and an error that names no way out.
  const bool fits_whole = is_unknown || !one_replica || Fits(graph, batch);
  if (!Keeps(spec, one_replica) || !fits_whole) {
    return absl::InvalidArgumentError(
        absl::StrCat("cutting the batch ", is_unknown ? "may" : "would", " change results: ", cause,
                     "; ", WayOut(one_replica, !has_others, fits_whole)));
  }
  spec.plan.whole_batch = true;
  spec.search.max_replicas = one_replica ? 1 : 0;
  spec.search.batch_reason = absl::StrCat(
      one_replica ? "the batch stays whole, in one micro-batch on one replica: "
                  : "each replica has one micro-batch, and batch statistics are summed over "
                    "replicas: ",
      cause);
  return absl::OkStatus();
}

void KeepReplicaLimit(JobSpec& spec) {
  const bool is_open = spec.plan.mesh.size() == 1 && spec.plan.workers.empty();
  if (spec.search.max_replicas == 1 && is_open) spec.plan.workers = {0};
}

}  // namespace weft
