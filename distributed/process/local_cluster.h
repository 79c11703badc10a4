// Worker processes, and a coordinator's clients for them.
#ifndef WEFT_DISTRIBUTED_PROCESS_LOCAL_CLUSTER_H_
#define WEFT_DISTRIBUTED_PROCESS_LOCAL_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/key_ring.h"
#include "distributed/worker_client.h"
#include "platform/process.h"

namespace weft {

// Sets what gRPC reads from the environment of this process, once. Where several threads start
// clusters or connect to them, call it before they run: they read the environment, too.
void PrepareForClusters();

// The clients of a job's workers, by rank. Destroyed after the coordinator.
class WorkerCluster {
 public:
  virtual ~WorkerCluster() = default;
  virtual std::vector<WorkerClient*> clients() const = 0;
  // The address of each rank's data streams.
  virtual const std::vector<std::string>& addresses() const = 0;
  // The error a job ended with, with what is known of the processes: when one was lost and its
  // process has ended, how ("worker:1 (pid 4711) was killed by signal 9 (Killed)") comes first;
  // when one is stopped by a signal, that. Other errors stay as they are.
  virtual absl::Status Explain(const absl::Status& error) = 0;
  // These clients (their indices, in ascending order) take no part in the job any more: they and
  // their addresses leave the lists, and processes that this cluster has started are killed. The
  // clients live as long as the cluster.
  virtual void Lose(const std::vector<int>& clients) = 0;
};

// Which worker processes StartLocalCluster starts on this machine.
struct LocalClusterOptions {
  // Started once per worker, with these arguments and then: --listen ADDRESS --ends-with-parent
  // PID --token-file FILE --allow-path / [--device DEVICE]. The token is a new one, in a file of
  // the cluster's folder.
  std::vector<std::string> command;  // {"/path/of/graph_runner", "worker"}
  int workers = 1;
  // By worker, "cpu:0": given to its process as --device; empty: not given.
  std::vector<std::string> devices = {};
  absl::Duration start_timeout = absl::Seconds(60);
  ProcessOutput standard_error = {};
};

// Starts worker processes on this machine, on unix sockets in a folder (0700) of their own, and
// ends them when it is destroyed. The thread that calls Start must outlive the cluster (the workers
// die with it). Unavailable naming the workers that did not answer in time, or how one ended.
absl::StatusOr<std::unique_ptr<WorkerCluster>> StartLocalCluster(
    ProcessLauncher& launcher, const LocalClusterOptions& options);

// Which running workers ConnectToCluster connects to.
struct RemoteClusterOptions {
  std::vector<std::string> addresses;  // by rank: "host:port" or "unix:/path"
  bool insecure_network = false;
  std::string token;                   // that the workers want
  std::shared_ptr<KeyRing> keys = {};  // for TLS; null: none
  absl::Duration start_timeout = absl::Seconds(60);
};

// Connects to workers that others started. Unavailable naming those that did not answer in time.
absl::StatusOr<std::unique_ptr<WorkerCluster>> ConnectToCluster(
    const RemoteClusterOptions& options);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_LOCAL_CLUSTER_H_
