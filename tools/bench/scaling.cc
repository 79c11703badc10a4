// LeNet images per second on one and on two worker processes (one thread each, global batch 128,
// gRPC over unix sockets), alternately in one run: `bazel run //tools/bench:scaling`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/local_cluster.h"
#include "distributed/worker_process.h"
#include "graph/cluster_spec.h"
#include "onnx_import/importer.h"
#include "onnx_import/trainable.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "tools/graph_runner/example_models.h"
#include "training/data_file.h"
#include "training/data_set.h"
#include "training/job.h"
#include "training/trainer.h"

namespace weft {
namespace {

constexpr char kVersion[] = "scaling";
constexpr int64_t kBatch = 128;
constexpr int64_t kSamples = kBatch * 20;
constexpr int64_t kSteps = 40;  // per round
constexpr int kRounds = 9;

absl::Status Serve(const std::vector<std::string>& arguments) {
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
  options.open_input = NewDataSetFactory(RealFileSystem());
  return ServeWorker(options);
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeData(const std::string& folder) {
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
  spec.batch = kBatch;
  return DataSet::Open(RealFileSystem(), spec);
}

// A job on worker processes that are there for the whole run.
struct RunningJob {
  std::unique_ptr<WorkerCluster> cluster;
  std::unique_ptr<Coordinator> coordinator;
  PreparedJob job;
};

absl::StatusOr<RunningJob> Start(const Graph& model, std::shared_ptr<const DataSet> data,
                                 int workers) {
  RunningJob running;
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

absl::StatusOr<double> ImagesPerSecond(RunningJob& running) {
  TrainOptions options;
  options.learning_rate = 0.001;
  options.steps = kSteps;
  const int64_t begin = RealClock().MonotonicNanos();
  WEFT_RETURN_IF_ERROR(
      Train(*running.coordinator, running.job, options, [](const TrainProgress&) {}).status());
  const double seconds = static_cast<double>(RealClock().MonotonicNanos() - begin) * 1e-9;
  return static_cast<double>(kSteps * kBatch) / seconds;
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-scaling-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(auto data, MakeData(folder));
  WEFT_ASSIGN_OR_RETURN(std::string bytes, ExampleModelFile("lenet", 1));
  WEFT_ASSIGN_OR_RETURN(ModelFile file, ModelFile::Parse(std::move(bytes), "lenet"));
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModel(file));
  WEFT_RETURN_IF_ERROR(MarkTrainable(model.graph).status());
  WEFT_ASSIGN_OR_RETURN(RunningJob one, Start(model.graph, data, 1));
  WEFT_ASSIGN_OR_RETURN(RunningJob two, Start(model.graph, data, 2));
  WEFT_RETURN_IF_ERROR(ImagesPerSecond(one).status());
  WEFT_RETURN_IF_ERROR(ImagesPerSecond(two).status());
  std::vector<double> singles, doubles, efficiencies;
  for (int round = 0; round < kRounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const double single, ImagesPerSecond(one));
    WEFT_ASSIGN_OR_RETURN(const double both, ImagesPerSecond(two));
    singles.push_back(single);
    doubles.push_back(both);
    efficiencies.push_back(both / (2 * single));
  }
  const auto print = [](const char* what, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%s: median %.4g (%.4g to %.4g)\n", what, values[values.size() / 2], values.front(),
                values.back());
  };
  print("images/s with 1 worker", singles);
  print("images/s with 2 workers", doubles);
  print("images/s(2) / (2 x images/s(1))", efficiencies);
  std::filesystem::remove_all(folder);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool worker = !arguments.empty() && arguments.front() == "worker";
  const absl::Status status = worker ? weft::Serve(arguments) : weft::Measure();
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
