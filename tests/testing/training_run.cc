#include "tests/testing/training_run.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "graph/cluster_spec.h"
#include "onnx_import/importer.h"
#include "onnx_import/trainable.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "training/data_set.h"
#include "training/job.h"
#include "training/trainer.h"

namespace weft::testing {

absl::StatusOr<TrainingOutcome> Run(const TrainingRun& run) {
  FileSystem& files = RealFileSystem();
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModelFile(files, run.model));
  TrainingSpec training;
  WEFT_ASSIGN_OR_RETURN(training.loss, ParseLoss(run.loss));
  training.optimizer = run.optimizer;
  training.report_gradients = run.gradients;
  TrainableOptions trainable;
  if (run.loss.starts_with("output:")) trainable.loss = run.loss.substr(7);
  WEFT_RETURN_IF_ERROR(MarkTrainable(model.graph, trainable).status());

  DataSpec data_spec;
  for (const auto& [input, path] : run.data) data_spec.files.push_back({input, path, 0});
  data_spec.batch = run.batch;
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const DataSet> data, DataSet::Open(files, data_spec));

  JobSpec spec;
  spec.cluster = ClusterSpec::Local(run.workers, 1);
  spec.plan = run.plan;
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(model.graph, training, spec, data));
  InProcessCluster cluster(run.workers, NewDataSetFactory(files), "test");
  Coordinator coordinator(cluster.clients());
  WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, "test", {}));

  TrainingOutcome outcome;
  TrainOptions options;
  options.learning_rate = run.optimizer.learning_rate;
  options.steps = run.steps;
  options.report_gradients = run.gradients;
  WEFT_ASSIGN_OR_RETURN(TrainResult result,
                        Train(coordinator, job, options, [&](const TrainProgress& progress) {
                          outcome.losses.push_back(progress.loss);
                        }));
  outcome.parameters = std::move(result.parameters);
  outcome.gradients = std::move(result.gradients);
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
