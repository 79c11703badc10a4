// Where a pipeline's stages begin: dynamic programming over units, for devices of unequal speed and
// memory.
#ifndef WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_
#define WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_

#include <cstdint>
#include <vector>

#include "placement/search/stage_costs.h"

namespace weft {

// One stage's ranks.
struct StagePlace {
  std::vector<int> devices;  // of the profile: the slowest decides
  double in_flight = 1;      // MicroBatchesInFlight
  int64_t memory_limit = 0;  // of each rank, for this stage; 0 = none
  // Whether what is done once per step is counted: of a rank with several stages, whose loads add
  // up, one tells little about it.
  bool counts_once = true;
  // Of the link from the stage before.
  double link_seconds_per_byte = 0;
  // Of gradients over the data axis: beside the last backward pass, and after it.
  double sum_seconds_per_byte = 0;
  double exposed_seconds_per_byte = 0;
};

struct StageCut {
  // The first unit of each stage, and the number of units; empty: none fits.
  std::vector<int> begins;
  double step_seconds = 0;  // by StageCost
};

// What a stage adds to a step among others of `micro_batches` (of one replica, times the chunks):
// a step takes Sum(passing) + Max(repeated).
struct StageCost {
  // One micro-batch there and back, with the link before; and what the first stage does once per
  // step, for which all others wait.
  double passing = 0;
  // All other micro-batches, at the pace of the stage or of its link. Where it is longer, what the
  // stage itself is busy for, with what it does once per step: this needs no time of its own while
  // other stages fill or drain the pipeline.
  double repeated = 0;
};

// Of units [first, last).
StageCost CostOfStage(const StageCosts& stage_costs, const StagePlace& place, int micro_batches,
                      int first, int last);
bool StageFits(const StageCosts& stage_costs, const StagePlace& place, int first, int last);

// Makes a step among others as short as StageCost says it can be, with every stage within its
// memory. Each stage gets a unit at least. Exact, but that of places that lie next to each other
// (2 % of an even stage's work and bytes) those that fewer bytes cross are looked at alone, where
// that leaves any: partial cuts that are better in one of the two sums are kept, and stages that
// alone take longer than a cut that was found are left out.
StageCut CutStages(const StageCosts& stage_costs, const std::vector<StagePlace>& places,
                   int micro_batches);

// The same by trying every cut: what tests hold CutStages against.
StageCut CutStagesExhaustively(const StageCosts& stage_costs, const std::vector<StagePlace>& places,
                               int micro_batches);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_
