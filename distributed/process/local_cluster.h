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
#include "distributed/loss_detection.h"
#include "distributed/worker_client.h"
#include "distributed/worker_source.h"
#include "platform/process.h"

namespace weft {

// Sets what gRPC reads from the environment of this process, once. Where several threads start
// clusters or connect to them, call it before they run: they read the environment, too.
void PrepareForClusters();

// The clients of a job's workers, by place: its rank, as the job was planned first. Destroyed after
// the coordinator. As a WorkerSource it starts processes anew (StartLocalCluster: three for each
// place, none where the worker has left on purpose), or waits for workers that come back to their
// addresses (ConnectToCluster).
class WorkerCluster : public WorkerSource {
 public:
  virtual std::vector<WorkerClient*> clients() const = 0;
  // The address of each one's data streams.
  virtual std::vector<std::string> addresses() const = 0;
  // The error a job ended with, with what is known of the processes: when one was lost and its
  // process has ended, how ("worker:1 (pid 4711) was killed by signal 9 (Killed)") comes first;
  // when one is stopped by a signal, that. Where all workers have let this process go, and have
  // accepted a later coordinator, a DeposedError says so. Other errors stay as they are.
  virtual absl::Status Explain(const absl::Status& error) = 0;
  // These take no part in the job any more: they and their addresses leave the lists, and processes
  // that this cluster has started are killed. The clients live as long as the cluster, or until
  // others are wanted in their places.
  virtual void Lose(const std::vector<WorkerClient*>& clients) = 0;
  // These have left the job on purpose (WorkerClient::is_leaving), and nobody uses their clients
  // any more, which end here: the processes end themselves.
  virtual void Release(const std::vector<WorkerClient*>& clients) = 0;
};

// Which worker processes StartLocalCluster starts on this machine.
struct LocalClusterOptions {
  // Started once per worker, with these arguments and then: --listen ADDRESS --ends-with-parent
  // PID --token-file FILE --allow-path / [--device DEVICE]. The token lies in a file of the
  // cluster's folder.
  std::vector<std::string> command;  // {"/path/of/graph_runner", "worker"}
  int workers = 1;
  // By worker, "cpu:0": given to its process as --device; empty: not given.
  std::vector<std::string> devices = {};
  // Of the job, where others may join its workers; "" = a new one.
  std::string token = {};
  absl::Duration start_timeout = absl::Seconds(60);
  // How soon one that does not answer is lost.
  LossDetection detection = {};
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
  LossDetection detection = {};
  absl::Duration start_timeout = absl::Seconds(60);
  // How long a worker is asked again that another coordinator attends: that one may be lost, and
  // the worker may not know it yet.
  absl::Duration attended_patience = absl::ZeroDuration();
};

// Longer than a worker believes a coordinator that is silent.
inline constexpr absl::Duration kAttendedPatience = absl::Seconds(8);

// Connects to workers that others started. Unavailable naming those that did not answer in time.
absl::StatusOr<std::unique_ptr<WorkerCluster>> ConnectToCluster(
    const RemoteClusterOptions& options);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_LOCAL_CLUSTER_H_
