#include "tools/bench/bench_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "distributed/job_token.h"
#include "distributed/keys/key_ring.h"
#include "distributed/process/worker_process.h"
#include "graph/cluster_spec.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "training/job/trainer.h"

namespace weft {

absl::Status ServeBenchWorker(const std::vector<std::string>& arguments,
                              std::function<InputSourceFactory(FileSystem& files)> open_input) {
  WorkerProcessOptions options;
  options.data_roots = {"/"};
  options.checkpoint_roots = {"/"};
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--listen") options.listen = arguments[i + 1];
    if (arguments[i] == "--ends-with-parent") {
      WEFT_RETURN_IF_ERROR(DieWithParent(std::atoll(arguments[i + 1].c_str())));
    }
    if (arguments[i] == "--token-file") {
      WEFT_ASSIGN_OR_RETURN(options.token, ReadTokenFile(arguments[i + 1]));
    }
    if (arguments[i] == "--keys") {
      WEFT_ASSIGN_OR_RETURN(options.keys, KeyRing::Open(arguments[i + 1]));
    }
  }
  if (options.listen == kBenchPort) {
    options.on_listening = [](const std::string& address) {
      std::printf("%s\n", address.c_str());
      std::fflush(stdout);
    };
  }
  options.ends_with_coordinator = true;
  options.version = kBenchVersion;
  options.device = &CpuDevice();
  options.open_input = std::move(open_input);
  return ServeWorker(options);
}

absl::StatusOr<BenchJob> StartBenchJob(const Graph& model, std::shared_ptr<const DataSet> data,
                                       int workers, const Plan& plan, int64_t replicate_every) {
  BenchJob running;
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(workers, 1);
  spec.plan = plan;
  spec.replicate_every = replicate_every;
  TrainingSpec training;
  training.optimizer.learning_rate = 0.001;
  WEFT_ASSIGN_OR_RETURN(running.job, PrepareTraining(model, training, spec, std::move(data)));
  WEFT_ASSIGN_OR_RETURN(std::string self, CurrentExecutable());
  LocalClusterOptions options;
  options.command = {self, "worker"};
  options.workers = workers;
  WEFT_ASSIGN_OR_RETURN(running.cluster, StartLocalCluster(RealProcessLauncher(), options));
  running.coordinator = std::make_unique<Coordinator>(running.cluster->clients());
  WEFT_RETURN_IF_ERROR(StartJob(*running.coordinator, running.job, spec, kBenchVersion,
                                running.cluster->addresses()));
  return running;
}

absl::StatusOr<double> TrainSteps(BenchJob& job, int64_t steps) {
  TrainOptions options;
  options.steps = steps + 1;
  int64_t first_end = 0, last_end = 0;
  const auto note = [&](const TrainProgress& progress) {
    last_end = RealClock().MonotonicNanos();
    if (progress.step == 0) first_end = last_end;
  };
  WEFT_RETURN_IF_ERROR(Train(*job.coordinator, job.job, options, note).status());
  return static_cast<double>(last_end - first_end) * 1e-9 / static_cast<double>(steps);
}

int BenchMain(int argc, char** argv, const std::function<absl::Status()>& measure) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool worker = !arguments.empty() && arguments.front() == "worker";
  const absl::Status status = worker ? ServeBenchWorker(arguments, NewDataSetFactory) : measure();
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}

void PrintMedian(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%s: median %.4g (%.4g to %.4g)\n", what, values[values.size() / 2], values.front(),
              values.back());
}

}  // namespace weft
