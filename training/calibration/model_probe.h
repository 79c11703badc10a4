// Measures the nodes of a training job, each worker with its own part and all at once.
#ifndef WEFT_TRAINING_CALIBRATION_MODEL_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_MODEL_PROBE_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"
#include "training/calibration/probe_session.h"
#include "training/job/job.h"

namespace weft {

// What one worker's part of a job has shown.
struct RankProbe {
  std::map<MeasuredOp, OpMeasurement> ops;
  double step_seconds = 0;  // of a step, all in all
  double input_bytes = 0;   // that a step reads
  double input_seconds = 0;
};
// The measured nodes of a job's step, by rank.
struct ModelProbe {
  std::vector<Partition> partitions;  // that were run: each rank's, without communication
  std::vector<RankProbe> ranks;
};

// Runs the first program of the job, without communication, for about `seconds` in `rounds`
// (ProbeSession::Measure). Variables change as they would in training. `learning_rate` should be so
// small that they stay finite.
absl::StatusOr<ModelProbe> ProbeModel(ProbeSession& session, const PreparedJob& job,
                                      double learning_rate, double seconds, int rounds);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_MODEL_PROBE_H_
