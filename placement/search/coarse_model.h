// A StepModel from coarse estimates: one representative of each set of ranks that do the same.
#ifndef WEFT_PLACEMENT_SEARCH_COARSE_MODEL_H_
#define WEFT_PLACEMENT_SEARCH_COARSE_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/search/collective_costs.h"
#include "placement/search/plan_choice.h"
#include "placement/search/stage_costs.h"
#include "placement/search/stage_cut.h"
#include "placement/search/stage_traffic.h"
#include "placement/simulation/step_model.h"

namespace weft {

// All-reduces of a place's buckets, one after the other. Of each size the nearest of eight per
// power of two is asked for, so that few have to be simulated: at most 1/16 off.
double SecondsOfBuckets(const PlaceSums& sums, const std::vector<int>& workers,
                        CollectiveCosts& collectives);

// Of a plan whose stages begin at the units `begins` (StageCut). Tensor-parallel groups are one
// rank of the model each, and so are replicas with equal devices and micro-batches. Gradients are
// summed over the data axis in buckets beside the backward pass of the last micro-batch, and
// scattered after it: as many and as large as they are in partitions (stage_traffic.h).
absl::StatusOr<StepModel> MakeCoarseModel(const StageCosts& stage_costs, const PlanChoice& choice,
                                          const std::vector<int>& begins, const CostModel& cost,
                                          CollectiveCosts& collectives, int64_t bucket_bytes);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_COARSE_MODEL_H_
