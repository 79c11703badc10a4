// The bytes that a job sent compared with its plan (law 5 of docs/architecture.md).
#ifndef WEFT_TRAINING_JOB_TRAFFIC_COMPARISON_H_
#define WEFT_TRAINING_JOB_TRAFFIC_COMPARISON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/traffic.h"
#include "training/job/job.h"

namespace weft {

// Payload bytes of one channel or collective of one program, over all its steps.
struct StreamComparison {
  std::string program;
  std::string name;
  RankId to;  // of a channel; none for a collective
  int64_t predicted_bytes = 0;
  int64_t measured_bytes = 0;
};

// The bytes that a rank has sent, and those that the plan predicts.
struct RankTraffic {
  RankId rank;
  int64_t steps = 0;
  int64_t predicted_bytes = 0;
  int64_t measured_bytes = 0;
  int64_t header_bytes = 0;  // besides
  std::vector<StreamComparison> streams;
};

// By rank. `measured` is what AskAll(TrafficRequest{}) says after the steps. Internal when the job
// has other ranks or programs.
absl::StatusOr<std::vector<RankTraffic>> CompareTraffic(const PreparedJob& job,
                                                        const std::vector<WorkerTraffic>& measured);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_TRAFFIC_COMPARISON_H_
