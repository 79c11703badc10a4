// ArrivingWorkers: connects to workers that are awaited, while a job runs.
#ifndef WEFT_DISTRIBUTED_PROCESS_ARRIVING_WORKERS_H_
#define WEFT_DISTRIBUTED_PROCESS_ARRIVING_WORKERS_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/worker_client.h"
#include "platform/mutex.h"

namespace weft {

// One thread for each place that is awaited: it tries until the worker answers and can be attended,
// or nobody awaits it any more, or its time is over. Which takes at most as long as a try, half a
// second or so. One thread calls the methods; the destructor waits for the others.
class ArrivingWorkers {
 public:
  struct Arrived {
    int place = 0;
    std::string address;
    std::unique_ptr<WorkerClient> client;  // null where its time was over
    absl::Status error = {};               // then: of the newest try
  };

  ArrivingWorkers() = default;
  ~ArrivingWorkers();
  ArrivingWorkers(const ArrivingWorkers&) = delete;
  ArrivingWorkers& operator=(const ArrivingWorkers&) = delete;

  // Nothing happens where the place is awaited. The deadline of `options` is not looked at. After
  // `until` no try begins.
  void Await(int place, const GrpcClientOptions& options,
             absl::Time until = absl::InfiniteFuture());
  void GiveUp(int place);
  bool is_awaited(int place) const { return tries_.contains(place); }
  bool is_awaiting() const { return !tries_.empty(); }
  // Those that have come, which are awaited no more; waits for the first until `deadline`.
  std::vector<Arrived> Take(absl::Time deadline);

 private:
  struct Try {
    std::thread thread;
    std::atomic<bool> is_given_up{false};
  };
  void Connect(int place, GrpcClientOptions options, absl::Time until,
               const std::atomic<bool>& is_given_up);

  std::map<int, std::unique_ptr<Try>> tries_;  // by place
  Mutex mutex_;
  CondVar changed_;
  std::vector<Arrived> arrived_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_ARRIVING_WORKERS_H_
