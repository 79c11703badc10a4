#include "tests/testing/training_run.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/process/local_cluster.h"
#include "graph/cluster_spec.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tools/console/version.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/trainer.h"
#include "training/recovery/replica_check.h"

namespace weft::testing {

namespace {

// The workers of one run, threads or processes.
class Workers {
 public:
  static absl::StatusOr<std::unique_ptr<Workers>> Start(const TrainingRun& run) {
    auto workers = std::make_unique<Workers>();
    if (!run.devices.empty()) {
      workers->threads_ = std::make_unique<InProcessCluster>(
          run.devices, NewDataSetFactory(RealFileSystem()), kVersion, run.cards);
      return workers;
    }
    if (run.worker_command.empty()) {
      workers->threads_ = std::make_unique<InProcessCluster>(
          run.workers, NewDataSetFactory(RealFileSystem()), kVersion);
      return workers;
    }
    LocalClusterOptions options;
    options.command = run.worker_command;
    options.workers = run.workers;
    ProcessLauncher& launcher = run.launcher != nullptr ? *run.launcher : RealProcessLauncher();
    WEFT_ASSIGN_OR_RETURN(workers->processes_, StartLocalCluster(launcher, options));
    return workers;
  }
  std::vector<WorkerClient*> clients() const {
    return threads_ != nullptr ? threads_->clients() : processes_->clients();
  }
  std::vector<std::string> addresses() const {
    return threads_ != nullptr ? std::vector<std::string>() : processes_->addresses();
  }
  absl::Status Explain(const absl::Status& error) {
    return processes_ != nullptr ? processes_->Explain(error) : error;
  }

 private:
  std::unique_ptr<InProcessCluster> threads_;
  std::unique_ptr<WorkerCluster> processes_;
};

absl::StatusOr<std::shared_ptr<const DataSet>> DataOf(const TrainingRun& run) {
  DataSpec spec;
  for (const auto& [input, path] : run.data) spec.files.push_back({input, path, 0});
  spec.batch = run.batch;
  return DataSet::Open(RealFileSystem(), spec);
}

JobSpec JobOf(const TrainingRun& run) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(run.workers, 1);
  if (run.cluster_has_devices) {
    for (size_t i = 0; i < run.devices.size(); ++i) {
      spec.cluster.workers[i].device = run.devices[i]->info().kind;
      spec.cluster.workers[i].device_index = run.devices[i]->info().index;
    }
  }
  spec.cpu_fallback = run.cpu_fallback;
  spec.plan = run.plan;
  spec.batch_policy = run.batch_policy;
  spec.stall_timeout_seconds = run.stall_timeout_seconds;
  spec.memory_per_worker = run.memory_per_worker;
  return spec;
}

}  // namespace

absl::StatusOr<TrainingOutcome> Run(const TrainingRun& run) {
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModelFile(RealFileSystem(), run.model));
  TrainableOptions trainable;
  if (run.loss.starts_with("output:")) trainable.loss = run.loss.substr(7);
  WEFT_RETURN_IF_ERROR(MarkTrainable(model, trainable).status());
  return RunGraph(model.graph, run);
}

absl::StatusOr<TrainingOutcome> RunGraph(const Graph& model, const TrainingRun& run) {
  TrainingSpec training;
  WEFT_ASSIGN_OR_RETURN(training.loss, ParseLoss(run.loss));
  training.optimizer = run.optimizer;
  training.report_gradients = run.gradients;
  if (run.change != nullptr) run.change(training);
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const DataSet> data, DataOf(run));
  const JobSpec spec = JobOf(run);
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(model, training, spec, data));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Workers> workers, Workers::Start(run));
  Coordinator coordinator(workers->clients(),
                          [&](const absl::Status& error) { return workers->Explain(error); });
  WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, kVersion, workers->addresses()));

  TrainingOutcome outcome;
  outcome.plan = job.plan;
  outcome.notes = job.notes;
  outcome.card_note = coordinator.card_note();
  // Whatever the plan, replicas end with the same bits.
  ReplicaCheckOptions at_end;
  at_end.every = std::max<int64_t>(run.steps, 1);
  at_end.on_divergence = OnDivergence::kStop;
  at_end.say = [](const std::string&) {};
  ReplicaCheck replicas(job, 0, at_end);
  TrainOptions options;
  options.hooks = {&replicas};
  options.steps = run.steps;
  options.report_gradients = run.gradients;
  WEFT_ASSIGN_OR_RETURN(TrainResult result,
                        Train(coordinator, job, options, [&](const TrainProgress& progress) {
                          outcome.losses.push_back(progress.loss);
                          if (run.progress != nullptr) run.progress(progress);
                        }));
  WEFT_ASSIGN_OR_RETURN(const std::vector<WorkerTraffic> measured,
                        coordinator.AskAll(TrafficRequest{}));
  WEFT_ASSIGN_OR_RETURN(outcome.traffic, CompareTraffic(job, measured));
  outcome.parameters = std::move(result.parameters);
  outcome.gradients = std::move(result.gradients);
  outcome.predicted = coordinator.memory();
  outcome.memory = std::move(result.memory);
  return outcome;
}

absl::StatusOr<EvaluationOutcome> EvaluateGraph(const Graph& model, const TrainingRun& run,
                                                const std::vector<std::string>& metrics) {
  WEFT_ASSIGN_OR_RETURN(const LossSpec loss, ParseLoss(run.loss));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const DataSet> data, DataOf(run));
  const JobSpec spec = JobOf(run);
  WEFT_ASSIGN_OR_RETURN(const PreparedJob job, PrepareEvaluation(model, loss, metrics, spec, data));
  TrainingRun ranks = run;
  ranks.workers = job.plan.mesh.size();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Workers> workers, Workers::Start(ranks));
  Coordinator coordinator(workers->clients(),
                          [&](const absl::Status& error) { return workers->Explain(error); });
  WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, kVersion, workers->addresses()));
  EvaluationOutcome outcome;
  outcome.plan = job.plan;
  outcome.notes = job.notes;
  WEFT_ASSIGN_OR_RETURN(outcome.metrics, Evaluate(coordinator, job, [](const TrainProgress&) {}));
  return outcome;
}

double LargestRelativeGap(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double gap = std::abs(a[i] - b[i]) / std::abs(b[i]);
    if (!std::isfinite(gap)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, gap);
  }
  return largest;
}

}  // namespace weft::testing
