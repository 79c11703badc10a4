// Trains or evaluates a model on workers of this process: the vocabulary of the end-to-end tests.
#ifndef WEFT_TESTS_TESTING_TRAINING_RUN_H_
#define WEFT_TESTS_TESTING_TRAINING_RUN_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/nccl/worker_card.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "platform/process.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "tests/corpora.h"
#include "training/graph/training_graph.h"
#include "training/job/job_spec.h"
#include "training/job/traffic_comparison.h"
#include "training/job/trainer.h"

namespace weft::testing {

struct TrainingRun {
  std::string model;                        // file
  std::map<std::string, std::string> data;  // input -> file
  OptimizerSpec optimizer;
  std::string loss = "softmax_cross_entropy";
  // What else the job has (schedule, clipping, groups): called with what the other fields say.
  std::function<void(TrainingSpec&)> change = nullptr;
  int64_t batch = 64;
  int64_t steps = 50;
  int workers = 1;
  Plan plan;                      // mesh, micro-batches, shardings, ... as a user would give them
  BatchPolicy batch_policy = {};  // where nodes mix samples
  bool gradients = false;
  // Empty: the workers are threads. Else a program and its arguments, one process per worker.
  std::vector<std::string> worker_command = {};
  // Of threads, one for each worker, borrowed; empty: CPUs.
  std::vector<Device*> devices = {};
  std::vector<WorkerCard> cards = {};  // of these; empty: what the devices are
  // The cluster says what kind of device each of `devices` is, as a cluster file would; else CPUs.
  bool cluster_has_devices = false;
  CpuFallback cpu_fallback = CpuFallback::kSmallShare;  // where it does
  ProcessLauncher* launcher = nullptr;                  // of the processes; null = the real one
  double stall_timeout_seconds = 60;
  std::function<void(const TrainProgress&)> progress = nullptr;  // after each step
  int64_t memory_per_worker = 0;                                 // 0 = what the machine allows
};

struct TrainingOutcome {
  std::vector<double> losses;  // of batch k before update k
  std::map<std::string, Tensor> parameters;
  std::map<std::string, Tensor> gradients;  // of the first step
  Plan plan;                                // complete
  std::vector<std::string> notes;           // PreparedJob::notes
  std::string card_note;                    // Coordinator::card_note
  std::vector<RankTraffic> traffic;         // by rank
  // By rank: what was predicted, and what the process had at most after the last step.
  std::vector<WorkerMemory> predicted;
  std::vector<ProcessMemory> memory;
};

absl::StatusOr<TrainingOutcome> Run(const TrainingRun& run);
// The same for a forward graph whose trainable variables are marked; `run.model` is not read.
absl::StatusOr<TrainingOutcome> RunGraph(const Graph& model, const TrainingRun& run);

struct EvaluationOutcome {
  std::map<std::string, double> metrics;
  Plan plan;                       // complete
  std::vector<std::string> notes;  // PreparedJob::notes
};

// Evaluates a forward graph over one pass of the data, as `eval` does. Of `run` it takes data,
// loss, batch, workers and how they are started, plan and batch policy.
absl::StatusOr<EvaluationOutcome> EvaluateGraph(const Graph& model, const TrainingRun& run,
                                                const std::vector<std::string>& metrics);

// Largest |a[i] - b[i]| / |b[i]|; infinity when sizes differ or a value is not finite.
double LargestRelativeGap(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_TRAINING_RUN_H_
