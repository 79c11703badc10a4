// SoakWorkers: workers of this process that the faults of a schedule strike.
#ifndef WEFT_TESTS_SOAK_SOAK_WORKERS_H_
#define WEFT_TESTS_SOAK_SOAK_WORKERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/in_process_transport.h"
#include "distributed/worker.h"
#include "distributed/worker_client.h"
#include "distributed/worker_source.h"
#include "platform/file_system.h"
#include "platform/mutex.h"
#include "platform/testing/fake_clock.h"
#include "tensor/device.h"
#include "tests/soak/fault_schedule.h"

namespace weft::testing {

// One worker per rank of the schedule's mesh. A message of rank r passes what befalls rank r, then
// a FaultInjectingTransport, then the hub. So a fault comes at the same message in each run,
// however threads take turns: messages with copies of states, which a thread of their own sends,
// have counts and faults of their own. How fast they travel says after which step a copy is made,
// and so what the n-th of them carries. A rank that is silent answers no call until the others
// notice; then its calls end as those of a lost process do. Where the schedule says so, a new
// worker comes in the place of a lost one: after some looks of the job, or a virtual second.
//
// Owns its workers and threads. Borrows the schedule, the clock and the files; somebody must turn
// the clock while a run waits. Calls come as WorkerClient wants them.
class SoakWorkers {
 public:
  SoakWorkers(const FaultSchedule& schedule, const InputSourceFactory& open_input,
              const std::string& version, FileSystem& checkpoint_files, FakeClock& clock);
  SoakWorkers(const SoakWorkers&) = delete;
  SoakWorkers& operator=(const SoakWorkers&) = delete;
  // No call is under way.
  ~SoakWorkers();

  // One per rank of the schedule's mesh.
  std::vector<WorkerClient*> clients() const;
  // Workers in the places of lost ones.
  WorkerSource& source() const;
  // The worker that began as this rank wants to leave.
  void Leave(int rank);
  // Whether fault number `fault` of the schedule has come; not of the disk.
  bool has_struck(size_t fault) const;
  // Ends all steps and calls, also those that wait for a rank that is silent.
  void EndAll();
  // Grows whenever a worker does something that others can see.
  int64_t activity() const { return activity_.load(); }

 private:
  class Rank;
  class RankTransport;
  class Source;
  struct State {
    int64_t sends = 0;       // of steps; also of jobs before
    int64_t copy_sends = 0;  // with copies of states; likewise
    int64_t asked = 0;       // calls after a loss
    bool silent = false;
    bool dead = false;  // and the others know
    absl::Time noticed_at;
  };
  // A worker that comes for a place.
  struct Awaited {
    int place = 0;
    int looks = 0;  // until it has come
    absl::Time at;  // or then
  };

  // One more of ranks_ and states_, with a worker.
  Rank& AddRank() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Want(int place);
  bool is_expected() const;
  std::vector<Arrival> Take(absl::Time deadline);
  absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(Rank& rank, const JobMembership& job);
  // Declares silent ranks lost when it is time.
  void Notice();

  const FaultSchedule& schedule_;
  const InputSourceFactory open_input_;
  const std::string version_;
  FileSystem& checkpoint_files_;
  FakeClock& clock_;
  std::atomic<int64_t> activity_{0};
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_ ABSL_GUARDED_BY(mutex_);
  CondVar changed_;
  uint64_t job_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<InProcessHub>> hubs_ ABSL_GUARDED_BY(mutex_);  // one per job
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);                        // by rank
  std::set<size_t> struck_ ABSL_GUARDED_BY(mutex_);                          // faults, by number
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Awaited> awaited_ ABSL_GUARDED_BY(mutex_);
  std::set<int> returned_ ABSL_GUARDED_BY(mutex_);  // places that had a newcomer
  std::vector<std::unique_ptr<Rank>> ranks_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Source> source_;
  std::thread noticing_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SOAK_SOAK_WORKERS_H_
