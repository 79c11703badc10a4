// What `train` prints before its first step and after its last one.
#ifndef WEFT_TOOLS_REPORTS_TRAINING_REPORT_H_
#define WEFT_TOOLS_REPORTS_TRAINING_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/memory_requirement.h"
#include "distributed/nccl/card_groups.h"
#include "graph/graph.h"
#include "nlohmann/json.hpp"
#include "onnx_import/parameters/trainable.h"
#include "training/adapters/lora.h"
#include "training/graph/training_spec.h"
#include "training/job/job.h"
#include "training/job/traffic_comparison.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"
#include "training/recovery/replica_check.h"
#include "training/scaling/noise_scale.h"

namespace weft {

// What a run is about to do. Borrows all.
struct TrainingSetup {
  std::string model;   // the file's path
  const Graph& graph;  // of the model
  const std::vector<LoraAdapter>& adapters;
  const TrainingSpec& training;
  const PreparedJob& job;
  bool shuffled = true;
  // On the model's parameters, if it has no step of its own.
  const std::vector<ParameterDecision>* decisions = nullptr;
};
// A line each for model, parameters, data, loss and plan, and one for each note; with control
// characters escaped.
std::string TrainingSetupText(const TrainingSetup& setup);
// "the loss is the model's output 'lm_loss', by its name"; "" where it was given.
std::string LossByNameText(const LossSpec& loss);

// What a run has done. Borrows the result.
struct TrainingOutcome {
  const TrainResult& result;
  int64_t first_step = 0;                 // the run began after so many
  std::vector<WorkerMemory> needed = {};  // by rank
  std::vector<RankTraffic> traffic = {};  // by rank; empty with one worker
  double input_stall = 0;         // the part of the steps' time that worker 0 waited for data
  double seconds = 0;             // of the run
  double samples_per_second = 0;  // 0: not known
  std::vector<int> shares = {};   // where micro-batches have moved
  CardUse cards = {};             // how GPUs exchanged what they had for each other
  ReplicaCheckSummary replicas = {};
  std::vector<RecoveryRecord> losses = {};  // that the run has gone on after
  // Of a run that was to measure the noise of its gradient, and its batch.
  const NoiseAverage* noise = nullptr;  // borrowed; null: it was not
  int64_t batch = 0;
  std::vector<std::string> notes = {};  // PreparedJob::notes
  // Files that were written; "" = none.
  std::string model = {};
  std::string averages = {};
  std::string metrics = {};
};
// Loss, time and speed, what was skipped and sent, and how the run ended.
std::string TrainingOutcomeText(const TrainingOutcome& outcome);
// "model out.onnx" and the like, a line for each file.
std::string TrainingFilesText(const TrainingOutcome& outcome);
nlohmann::ordered_json TrainingOutcomeJson(const TrainingOutcome& outcome);
// The peak of each worker against what was required, a line each.
std::string MemoryPeaksText(const TrainingOutcome& outcome);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_TRAINING_REPORT_H_
