// JobWorkers: all workers that a job may have, those that its plan counts on and others.
#ifndef WEFT_DISTRIBUTED_PROCESS_JOB_WORKERS_H_
#define WEFT_DISTRIBUTED_PROCESS_JOB_WORKERS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/process/further_workers.h"
#include "distributed/process/local_cluster.h"
#include "distributed/worker_client.h"
#include "distributed/worker_source.h"

namespace weft {

// Passes on to whom it concerns. Borrows both. One thread calls it.
class JobWorkers final : public WorkerSource {
 public:
  // `further`: null where there are none.
  JobWorkers(WorkerCluster& cluster, FurtherWorkers* further)
      : cluster_(cluster), further_(further) {}

  void Want(int place) override { cluster_.Want(place); }
  bool is_expected() const override { return cluster_.is_expected(); }
  std::vector<Arrival> Take(absl::Time deadline) override;
  void TakenIn(const WorkerClient& client) override;
  void Refuse(WorkerClient& client, const absl::Status& why) override;
  // As of WorkerCluster.
  void Lose(const std::vector<WorkerClient*>& clients);
  void Release(const std::vector<WorkerClient*>& clients);

 private:
  WorkerCluster& cluster_;
  FurtherWorkers* const further_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_JOB_WORKERS_H_
