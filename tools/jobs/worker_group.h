// WorkerGroup: the workers of one job, wherever they run.
#ifndef WEFT_TOOLS_JOBS_WORKER_GROUP_H_
#define WEFT_TOOLS_JOBS_WORKER_GROUP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/loss_detection.h"
#include "distributed/process/further_workers.h"
#include "distributed/process/job_workers.h"
#include "distributed/process/local_cluster.h"
#include "tools/console/console.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/network_keys.h"
#include "training/job/job.h"

namespace weft {

// How a group looks after its workers.
struct WorkerGroupOptions {
  LossDetection detection = {};
  // Workers may join the job while it runs: those that we start then have the user's token.
  bool may_be_joined = false;
  absl::Duration attended_patience = absl::ZeroDuration();  // as in RemoteClusterOptions
};

// One worker in this process, processes started by us, or workers that others started. Ends those
// that it started when it is destroyed; the thread that made it must outlive it.
class WorkerGroup {
 public:
  // Starts or connects, joins the workers, and hands out the job, with the evaluation within it if
  // there is one. Says on `console` what is waited for.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Start(
      const JobFlags& flags, const JobSpec& spec, const PreparedJob& job, Console& console,
      const PreparedJob* evaluation = nullptr, const WorkerGroupOptions& options = {});

  // The same without a job, for workers of the cluster in this order: they wait to be joined.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Launch(
      const JobFlags& flags, const ClusterSpec& cluster, const std::vector<int>& order,
      Console& console, const WorkerGroupOptions& options = {});

  // Connects to the spares of the cluster, and listens at `listen` for workers that want to join
  // ("" = does not); a second time nothing is done. Errors of FurtherWorkers, with their exit code.
  // REQUIRES: of processes; with `listen`, may_be_joined.
  absl::Status AddFurther(const ClusterSpec& cluster, const std::string& listen, Console& console);
  // The spares that are there, after AddFurther; none before it.
  std::vector<WorkerClient*> further_clients() const {
    return further_ == nullptr ? std::vector<WorkerClient*>() : further_->clients();
  }
  // What Start does after Launch.
  absl::Status Begin(const JobSpec& spec, const PreparedJob& job, Console& console,
                     const PreparedJob* evaluation, const JobStart& start);

  Coordinator& coordinator() { return *coordinator_; }
  // Of the ranks' data; empty in this process.
  std::vector<std::string> addresses() const;
  // The error the job ended with, with what is known of the worker's process.
  absl::Status Explain(const absl::Status& error);
  // An IsDeposed error where the workers have accepted a later coordinator than this one; OK
  // otherwise, also where some are lost.
  absl::Status CheckNotDeposed();
  // Where workers come from while the job runs, and where those go that are in it no more; null in
  // this process. After AddFurther, if at all.
  JobWorkers* workers();

 private:
  WorkerGroup() = default;

  std::unique_ptr<InProcessCluster> threads_;
  WorkerGroupOptions options_;
  NetworkKeys network_;
  bool connects_ = false;  // others have started them
  bool insecure_network_ = false;
  std::unique_ptr<WorkerCluster> processes_;
  std::unique_ptr<FurtherWorkers> further_;
  std::optional<JobWorkers> workers_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_WORKER_GROUP_H_
