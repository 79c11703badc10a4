// N workers in this process, one thread each while they run: what a job without --local or
// --cluster uses (N = 1), and tests.
#ifndef WEFT_DISTRIBUTED_IN_PROCESS_CLUSTER_H_
#define WEFT_DISTRIBUTED_IN_PROCESS_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/in_process_transport.h"
#include "distributed/worker.h"
#include "distributed/worker_client.h"
#include "tensor/device.h"

namespace weft {

// Owns workers, their devices and the hub between them.
class InProcessCluster {
 public:
  // `files` is where checkpoints are written to, borrowed; null: the machine's.
  InProcessCluster(int workers, InputSourceFactory open_input, std::string version,
                   FileSystem* files = nullptr);
  // The same on devices of the caller's, one worker each; borrowed. `cards`: their GPUs, by worker;
  // empty: what the devices are.
  InProcessCluster(const std::vector<Device*>& devices, InputSourceFactory open_input,
                   std::string version, const std::vector<WorkerCard>& cards = {},
                   FileSystem* files = nullptr);
  ~InProcessCluster();
  // One per rank; they live as long as this.
  std::vector<WorkerClient*> clients() const;

  // Gives the worker of this number another transport than its own one, for a test's faults. Before
  // the first job.
  using TransportHook = std::function<std::unique_ptr<Transport>(
      int worker, const JobMembership& job, std::unique_ptr<Transport> own)>;
  void set_transport_hook(TransportHook hook) { hook_ = std::move(hook); }

 private:
  void AddWorkers(const std::vector<Device*>& devices, const InputSourceFactory& open_input,
                  const std::string& version, FileSystem* files,
                  const std::vector<WorkerCard>& cards);
  std::vector<std::unique_ptr<Device>> devices_;
  TransportHook hook_;
  // A new hub for each job: an aborted one stays aborted.
  Mutex mutex_;
  uint64_t job_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<InProcessHub>> hubs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_IN_PROCESS_CLUSTER_H_
