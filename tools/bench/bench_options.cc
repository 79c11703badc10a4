#include "tools/bench/bench_options.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/job_token.h"
#include "distributed/keys/key_ring.h"
#include "graph/cluster_spec.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(60);

// A file with a new token, in a folder of its own that is left to the system to remove.
absl::StatusOr<std::string> NewTokenFile() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(const std::string token, NewJobToken());
  WEFT_RETURN_IF_ERROR(WriteTokenFile(folder + "/token", token));
  return folder + "/token";
}

absl::Status StartOnPorts(const std::string& self, int workers, const BenchJobOptions& options,
                          OwnedBenchJob& running) {
  RemoteClusterOptions remote;
  remote.detection = options.detection;
  WEFT_ASSIGN_OR_RETURN(const std::string token_file, NewTokenFile());
  WEFT_ASSIGN_OR_RETURN(remote.token, ReadTokenFile(token_file));
  for (int i = 0; i < workers; ++i) {
    ProcessOptions process;
    process.arguments = {
        self,           "worker",   "--listen",           kBenchPort,
        "--token-file", token_file, "--ends-with-parent", std::to_string(CurrentProcessId())};
    if (!options.keys.empty()) {
      process.arguments.insert(process.arguments.end(), {"--keys", options.keys + "/127.0.0.1"});
    }
    process.standard_output.kind = ProcessOutput::Kind::kPipe;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Process> started, RealProcessLauncher().Start(process));
    WEFT_ASSIGN_OR_RETURN(std::string address, started->ReadLine(absl::Now() + kStartTimeout));
    remote.addresses.push_back(std::move(address));
    running.processes.push_back(std::move(started));
  }
  if (!options.keys.empty()) {
    WEFT_ASSIGN_OR_RETURN(remote.keys, KeyRing::Open(options.keys + "/coordinator"));
  }
  WEFT_ASSIGN_OR_RETURN(running.job.cluster, ConnectToCluster(remote));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OwnedBenchJob> StartBenchJobWith(const Graph& model,
                                                std::shared_ptr<const DataSet> data, int workers,
                                                const BenchJobOptions& options) {
  OwnedBenchJob running;
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(workers, 1);
  spec.plan.commits = spec.commits = options.commits;
  TrainingSpec training;
  training.optimizer.learning_rate = 0.001;
  WEFT_ASSIGN_OR_RETURN(running.job.job, PrepareTraining(model, training, spec, std::move(data)));
  WEFT_ASSIGN_OR_RETURN(std::string self, CurrentExecutable());
  if (options.tcp) {
    WEFT_RETURN_IF_ERROR(StartOnPorts(self, workers, options, running));
  } else {
    LocalClusterOptions local;
    local.command = {self, "worker"};
    local.workers = workers;
    local.detection = options.detection;
    WEFT_ASSIGN_OR_RETURN(running.job.cluster, StartLocalCluster(RealProcessLauncher(), local));
  }
  running.job.coordinator = std::make_unique<Coordinator>(running.job.cluster->clients());
  WEFT_RETURN_IF_ERROR(StartJob(*running.job.coordinator, running.job.job, spec, kBenchVersion,
                                running.job.cluster->addresses()));
  return running;
}

}  // namespace weft
