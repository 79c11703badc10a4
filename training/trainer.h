// The loop: runs a prepared job on started workers.
#ifndef WEFT_TRAINING_TRAINER_H_
#define WEFT_TRAINING_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "training/job.h"

namespace weft {

struct TrainOptions {
  double learning_rate = 0.01;
  int64_t steps = 0;
  // Run the first step with the program that reports gradients (PrepareTraining was asked for it).
  bool report_gradients = false;
};

struct TrainProgress {
  int64_t step = 0;     // 0-based, just done
  double loss = 0;      // of its batch, before its update
  int64_t samples = 0;  // of its batch
  double seconds = 0;
  double input_seconds = 0;
};

struct TrainResult {
  std::map<std::string, Tensor> parameters;  // trained values by name, global
  std::map<std::string, Tensor> gradients;   // of the first step, by parameter, when asked for
  double last_loss = 0;
  std::vector<ProcessMemory> memory;  // of the workers, by rank, after the last step
};

// `progress` is called after each step, from another thread, in order. A loss that is not finite
// ends the run with OutOfRange that names the first node that made a NaN.
absl::StatusOr<TrainResult> Train(Coordinator& coordinator, const PreparedJob& job,
                                  const TrainOptions& options,
                                  const std::function<void(const TrainProgress&)>& progress);

// Metrics over one pass of the data.
absl::StatusOr<std::map<std::string, double>> Evaluate(
    Coordinator& coordinator, const PreparedJob& job,
    const std::function<void(const TrainProgress&)>& progress);

}  // namespace weft

#endif  // WEFT_TRAINING_TRAINER_H_
