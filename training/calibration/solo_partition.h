// A rank's work without its peers, to measure what it computes.
#ifndef WEFT_TRAINING_CALIBRATION_SOLO_PARTITION_H_
#define WEFT_TRAINING_CALIBRATION_SOLO_PARTITION_H_

#include "absl/status/status.h"
#include "graph/partition.h"

namespace weft {

// Takes all communication out: sends vanish, a sum over ranks is the rank's own part, and what
// other ranks would send is zeros. The rest stays node by node, so that what it takes is what it
// takes in the job, but for the waiting.
absl::Status RemovePeers(Partition& partition);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_SOLO_PARTITION_H_
