#include "tools/bench/lenet_job.h"

#include <cstdlib>
#include <utility>

#include "distributed/worker_process.h"
#include "graph/cluster_spec.h"
#include "onnx_import/importer.h"
#include "onnx_import/trainable.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "tools/graph_runner/example_models.h"
#include "training/data_file.h"
#include "training/data_set.h"
#include "training/trainer.h"

namespace weft {
namespace {

constexpr char kVersion[] = "bench";
constexpr int64_t kSamples = kLenetBatch * 20;

}  // namespace

absl::Status ServeLenetWorker(const std::vector<std::string>& arguments,
                              InputSourceFactory open_input) {
  WorkerProcessOptions options;
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--listen") options.listen = arguments[i + 1];
    if (arguments[i] == "--ends-with-parent") {
      WEFT_RETURN_IF_ERROR(DieWithParent(std::atoll(arguments[i + 1].c_str())));
    }
  }
  options.ends_with_coordinator = true;
  options.version = kVersion;
  options.device = &CpuDevice();
  options.open_input = std::move(open_input);
  return ServeWorker(options);
}

absl::StatusOr<Graph> LenetModel() {
  WEFT_ASSIGN_OR_RETURN(std::string bytes, ExampleModelFile("lenet", 1));
  WEFT_ASSIGN_OR_RETURN(ModelFile file, ModelFile::Parse(std::move(bytes), "lenet"));
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModel(file));
  WEFT_RETURN_IF_ERROR(MarkTrainable(model.graph).status());
  return std::move(model.graph);
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeLenetData(const std::string& folder) {
  std::vector<uint8_t> pixels(kSamples * 28 * 28);
  std::vector<uint8_t> labels(kSamples);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 10);
  WEFT_ASSIGN_OR_RETURN(std::string x, ToNpy(Tensor::Of<uint8_t>(Shape{kSamples, 28, 28}, pixels)));
  WEFT_ASSIGN_OR_RETURN(std::string y, ToNpy(Tensor::Of<uint8_t>(Shape{kSamples}, labels)));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/x.npy", x));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/y.npy", y));
  DataSpec spec;
  spec.files = {{"x", folder + "/x.npy", 0}, {"labels", folder + "/y.npy", 0}};
  spec.batch = kLenetBatch;
  return DataSet::Open(RealFileSystem(), spec);
}

absl::StatusOr<LenetJob> StartLenetJob(const Graph& model, std::shared_ptr<const DataSet> data,
                                       int workers) {
  LenetJob running;
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(workers, 1);
  TrainingSpec training;
  WEFT_ASSIGN_OR_RETURN(running.job, PrepareTraining(model, training, spec, std::move(data)));
  WEFT_ASSIGN_OR_RETURN(std::string self, CurrentExecutable());
  LocalClusterOptions options;
  options.command = {self, "worker"};
  options.workers = workers;
  WEFT_ASSIGN_OR_RETURN(running.cluster, StartLocalCluster(RealProcessLauncher(), options));
  running.coordinator = std::make_unique<Coordinator>(running.cluster->clients());
  WEFT_RETURN_IF_ERROR(
      StartJob(*running.coordinator, running.job, spec, kVersion, running.cluster->addresses()));
  return running;
}

absl::Status TrainLenet(LenetJob& job, int64_t steps) {
  TrainOptions options;
  options.learning_rate = 0.001;
  options.steps = steps;
  return Train(*job.coordinator, job.job, options, [](const TrainProgress&) {}).status();
}

}  // namespace weft
