// Builds the partition of one rank from the layout of a step. Internal to placement/.
#ifndef WEFT_PLACEMENT_PARTITION_RANK_PARTITION_H_
#define WEFT_PLACEMENT_PARTITION_RANK_PARTITION_H_

#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "placement/pipeline/step_layout.h"

namespace weft {

absl::StatusOr<Partition> BuildRankPartition(const StepLayout& layout, RankId rank);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_RANK_PARTITION_H_
