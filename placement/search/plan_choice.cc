#include "placement/search/plan_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

std::string ParallelText(const PlanChoice& choice) {
  std::string text = absl::StrCat("dp=", choice.mesh.data, ",tp=", choice.mesh.tensor,
                                  ",pp=", choice.mesh.pipeline, ",micro=", choice.micro_batches);
  if (choice.num_stages() > 1) absl::StrAppend(&text, ",schedule=", choice.schedule);
  if (choice.chunks > 1) absl::StrAppend(&text, ",chunks=", choice.chunks);
  if (!choice.shares.empty()) {
    absl::StrAppend(&text, ",shares=", absl::StrJoin(choice.shares, ":"));
  }
  if (choice.zero > 0) absl::StrAppend(&text, ",zero=", choice.zero);
  if (choice.recompute_segments == 1) absl::StrAppend(&text, ",recompute=all");
  if (choice.recompute_segments > 1) {
    absl::StrAppend(&text, ",recompute=", choice.recompute_segments);
  }
  return text;
}

PlanChoice ChoiceOf(const Plan& plan, int segments) {
  PlanChoice choice;
  choice.mesh = plan.mesh;
  choice.micro_batches = plan.micro_batches;
  choice.schedule = plan.schedule;
  choice.chunks = plan.chunks;
  choice.zero = plan.zero;
  choice.recompute_segments = segments;
  choice.workers = plan.workers;
  choice.shares = plan.shares;
  return choice;
}

namespace {

Plan WithTheRule(const PlanChoice& choice) {
  Plan plan;  // which has the rule
  plan.mesh = choice.mesh;
  plan.shares = choice.shares;
  return plan;
}

}  // namespace

int PlanChoice::MicroBatchesOf(int replica) const {
  const Plan plan = WithTheRule(*this);
  return plan.FirstMicroBatch(replica + 1, micro_batches) -
         plan.FirstMicroBatch(replica, micro_batches);
}

int PlanChoice::MaxMicroBatches() const {
  // Equal shares differ by one at most.
  if (shares.empty()) return (micro_batches + mesh.data - 1) / mesh.data;
  const Plan plan = WithTheRule(*this);
  int max_count = 0;
  for (int replica = 0, first = 0; replica < mesh.data; ++replica) {
    const int next = plan.FirstMicroBatch(replica + 1, micro_batches);
    max_count = std::max(max_count, next - first);
    first = next;
  }
  return max_count;
}

double MinRounds(const PlanChoice& choice) {
  const double own = std::max(1, choice.MaxMicroBatches());
  const double waits = choice.mesh.pipeline - 1;
  if (choice.schedule == "interleaved") return own + waits / choice.chunks;
  // Only the forward pass and the part of the backward pass that others wait for.
  if (choice.schedule == "zero_bubble") return own + waits / 3;
  return own + waits;
}

double MicroBatchesInFlight(const PlanChoice& choice, int place) {
  const int own = choice.MaxMicroBatches();
  const int ranks = choice.mesh.pipeline;
  if (choice.num_stages() == 1) return 1;
  if (choice.schedule == "1f1b") return std::min(own, ranks - place);
  if (choice.schedule == "zero_bubble") return std::min(own, ranks);
  if (choice.schedule == "interleaved") {
    // Warm-up of InterleavedActions and the one that runs; each is one chunk of the place.
    const int warm_up = (ranks - place - 1) * 2 + (choice.chunks - 1) * ranks + 1;
    return static_cast<double>(std::min(warm_up, own * choice.chunks)) / choice.chunks;
  }
  return own;
}

}  // namespace weft
