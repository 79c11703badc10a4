// WorkerGroup: the workers of one job, wherever they run.
#ifndef WEFT_TOOLS_JOBS_WORKER_GROUP_H_
#define WEFT_TOOLS_JOBS_WORKER_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/loss_detection.h"
#include "distributed/process/local_cluster.h"
#include "tools/console/console.h"
#include "tools/flags/job_flags.h"
#include "training/job/job.h"

namespace weft {

// One worker in this process, processes started by us, or workers that others started. Ends those
// that it started when it is destroyed; the thread that made it must outlive it.
class WorkerGroup {
 public:
  // Starts or connects, joins the workers, and hands out the job, with the evaluation within it if
  // there is one. Says on `console` what is waited for.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Start(
      const JobFlags& flags, const JobSpec& spec, const PreparedJob& job, Console& console,
      const PreparedJob* evaluation = nullptr, const LossDetection& detection = {});

  // The same without a job, for workers of the cluster in this order: they wait to be joined.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Launch(const JobFlags& flags,
                                                             const ClusterSpec& cluster,
                                                             const std::vector<int>& order,
                                                             Console& console,
                                                             const LossDetection& detection = {});

  Coordinator& coordinator() { return *coordinator_; }
  // Of the ranks' data; empty in this process.
  std::vector<std::string> addresses() const;
  // The error the job ended with, with what is known of the worker's process.
  absl::Status Explain(const absl::Status& error);
  // The cluster's processes; null in this process.
  WorkerCluster* processes() { return processes_.get(); }

 private:
  WorkerGroup() = default;

  std::unique_ptr<InProcessCluster> threads_;
  std::unique_ptr<WorkerCluster> processes_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_WORKER_GROUP_H_
