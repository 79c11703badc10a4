// PlanChoice: what a search decides about a plan, before stages are cut.
#ifndef WEFT_PLACEMENT_SEARCH_PLAN_CHOICE_H_
#define WEFT_PLACEMENT_SEARCH_PLAN_CHOICE_H_

#include <string>
#include <vector>

#include "graph/plan.h"

namespace weft {

struct PlanChoice {
  Mesh mesh;
  int micro_batches = 1;  // of the whole job
  std::string schedule = "gpipe";
  int chunks = 1;
  int zero = 0;
  int recompute_segments = 0;  // of each stage; 0 = nothing runs again
  std::vector<int> workers;    // the cluster's worker for each rank
  std::vector<int> shares;     // as Plan::shares

  int num_stages() const { return mesh.pipeline * chunks; }
  // Of replica `replica`.
  int MicroBatchesOf(int replica) const;
  int MaxMicroBatches() const;  // of any replica
  int WorkerAt(int replica, int shard, int place) const {
    return workers[mesh.RankOf({replica, shard, place}).value];
  }
  friend bool operator==(const PlanChoice&, const PlanChoice&) = default;
};

// As --parallel takes it: "dp=2,tp=1,pp=2,micro=4,schedule=1f1b,zero=1,recompute=2".
std::string ParallelText(const PlanChoice& choice);
// The same of a plan; `segments`: Plan::recompute_segments before it was completed.
PlanChoice ChoiceOf(const Plan& plan, int segments);

// At least so many rounds, of a micro-batch there and back on every rank, does the choice's
// schedule take: its micro-batches, and what ranks wait while the pipeline fills and drains.
double MinRounds(const PlanChoice& choice);

// Most micro-batches whose activations a place of the pipeline holds at once, times the share of
// the place's stages that each is (its chunks): what kept activations are multiplied by.
double MicroBatchesInFlight(const PlanChoice& choice, int place);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLAN_CHOICE_H_
