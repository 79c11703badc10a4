// What a plan sends: bytes of payload per channel and collective, exactly as they will be counted
// (distributed/traffic.h).
#ifndef WEFT_PLACEMENT_PARTITION_TRAFFIC_PREDICTION_H_
#define WEFT_PLACEMENT_PARTITION_TRAFFIC_PREDICTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

// What one rank sends in one step on one channel or in one collective.
struct StreamPrediction {
  std::string name;  // the channel's value, the collective's node
  RankId to;         // of a channel; none for a collective
  std::string type;  // of the (first) tensor: "float32[3,12]"
  int64_t bytes = 0;
};

// By name, then receiver. A channel or node that several micro graphs have is here once, with what
// all micro-batches send. Internal for a partition that does not fit together.
absl::StatusOr<std::vector<StreamPrediction>> PredictTraffic(const Partition& partition);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_TRAFFIC_PREDICTION_H_
