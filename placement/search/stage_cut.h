// Where a pipeline's stages begin: dynamic programming over units, for devices of unequal speed and
// memory.
#ifndef WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_
#define WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_

#include <cstdint>
#include <vector>

#include "placement/search/stage_figures.h"

namespace weft {

// One stage's ranks.
struct StagePlace {
  std::vector<int> devices;  // of the profile: the slowest decides
  double in_flight = 1;      // MicroBatchesInFlight
  int64_t memory_limit = 0;  // of each rank, for this stage; 0 = none
};

struct StageCut {
  std::vector<int>
      begins;  // the first unit of each stage, and the number of units; empty: none fits
  double slowest_seconds = 0;
};

// Makes the slowest stage as fast as it can be (the pace of a full pipeline) with every stage
// within its memory; of equal ones the cut that fewest bytes cross. `bytes_per_second` of the links
// between stages; 0 = any. Each stage gets a unit at least. O(units^2 stages).
StageCut CutStages(const StageFigures& figures, const std::vector<StagePlace>& places,
                   double bytes_per_second);

// The same by trying every cut: what tests hold CutStages against.
StageCut CutStagesExhaustively(const StageFigures& figures, const std::vector<StagePlace>& places,
                               double bytes_per_second);

// Seconds of units [first, last) on the slowest of the place's devices, or those of the link before
// them where that takes longer.
double StageSeconds(const StageFigures& figures, const StagePlace& place, int first, int last,
                    double bytes_per_second);
bool StageFits(const StageFigures& figures, const StagePlace& place, int first, int last);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_STAGE_CUT_H_
