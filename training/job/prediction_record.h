// Prediction and measurement of a run: one entry of the history (law 15 of
// docs/architecture.md).
#ifndef WEFT_TRAINING_JOB_PREDICTION_RECORD_H_
#define WEFT_TRAINING_JOB_PREDICTION_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/coordinator.h"
#include "placement/cost/run_history.h"
#include "training/job/job.h"
#include "training/job/traffic_comparison.h"
#include "training/job/trainer.h"

namespace weft {

// Collects the steps of one run as they are reported, those of one shape of batches. The
// first steps of a run, in which memory is touched for the first time, are left out where there are
// enough others. One thread.
class StepTimes {
 public:
  explicit StepTimes(BatchShape shape) : shape_(shape) {}
  void Add(const TrainProgress& done);
  int64_t steps() const { return static_cast<int64_t>(seconds_.size()); }
  double MedianSeconds() const;
  double MedianInputSeconds() const;

 private:
  BatchShape shape_;
  std::vector<double> seconds_;
  std::vector<double> input_seconds_;
};

// What a run is compared by, besides its plan.
struct RunMeasurements {
  std::string model;  // the file's name
  absl::Time ended;
  double factor = 1;                  // CostModel::StepFactor in the plan's prediction
  std::vector<RankTraffic> traffic;   // empty: nothing is sent
  std::vector<WorkerMemory> needed;   // required, by rank
  std::vector<ProcessMemory> memory;  // measured, by rank
  // By rank, with nodes timed in some steps (TrainOptions::timed_steps); may be empty.
  std::vector<std::vector<ProgramStatistics>> statistics;
};
RunHistoryEntry RecordOf(const PreparedJob& job, const StepTimes& steps,
                         const RunMeasurements& run);

// Two lines or three for people: predicted and measured step with its parts, and the error.
std::string ComparisonText(const RunHistoryEntry& entry);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_PREDICTION_RECORD_H_
