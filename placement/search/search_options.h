// What a search is asked.
#ifndef WEFT_PLACEMENT_SEARCH_SEARCH_OPTIONS_H_
#define WEFT_PLACEMENT_SEARCH_SEARCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "placement/partition/partition_memory.h"
#include "placement/search/node_costs.h"

namespace weft {

struct SearchOptions {
  int64_t global_batch = 1;
  // Threads, strictness, bucket size and hinted shardings of parameters are taken from here; and
  // its micro-batches where they are fixed.
  Plan given;
  // The micro-batches belong to the job: results depend on them.
  bool fixed_micro_batches = false;
  // Where nodes mix samples of the batch, `given` has whole_batch; then, and why: replicas at most
  // (0 = any number), which each run one micro-batch.
  int max_replicas = 0;
  std::string batch_reason;
  // Whether the plan may use fewer workers than there are.
  bool may_leave_out = false;
  // "dp", "anneal" or "exhaustive" (NewSearchStrategy).
  std::string strategy = "dp";
  // Shards of the tensor axis at most; strict jobs have one.
  int max_tensor = 16;
  // By worker: what a rank on it may take; 0 or beyond the end = any amount.
  std::vector<int64_t> memory_limits;
  // By worker: its threads; 0 or beyond the end = as `given` says. SearchPlan fills it in from the
  // cluster.
  std::vector<int> worker_threads;
  // What a worker's process takes besides variables and what a step makes.
  int64_t process_bytes = 0;
  // What a rank's compile finds. Of plans that were simulated rank by rank it is asked of the
  // fastest, where that comes near a limit, so that none of them is taken which its workers then
  // refuse. Null: estimates decide.
  RankMemoryFn rank_memory;
  // What nodes take, where that is not Weft's kernels' time by the cost model: for comparing with
  // another framework. Such plans are not simulated from their partitions. Empty: the cost model.
  NodeCostsFactory node_costs;
  // The forward pass is cut into so many units at most.
  int max_units = 192;
  // So many choices are looked at closely at most.
  int max_evaluations = 1500;
  // Of the best plans, of different meshes, so many are partitioned and simulated rank by rank,
  // where nodes times ranks are no more than `exact_work`.
  int exact_plans = 6;
  int64_t exact_work = 6000;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_SEARCH_OPTIONS_H_
