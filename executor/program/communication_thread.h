// Runs a step's asynchronous collectives while the compute list runs.
#ifndef WEFT_EXECUTOR_PROGRAM_COMMUNICATION_THREAD_H_
#define WEFT_EXECUTOR_PROGRAM_COMMUNICATION_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace weft {

// Runs `count` jobs a step, in order; job i may start when the jobs before it have ended and
// `signals_needed(i)` signals have been given. Whoever has time runs them: the thread beside the
// compute list, or the compute thread itself while it waits for them, which saves two hand-overs
// (25 to 50 microseconds each). One job runs at a time. The hand-over is atomic counters, no locks.
// Every wait here ends: the compute thread signals or cancels, and a job's own waits have deadlines
// (the communicator's).
//
// All methods are for the one compute thread.
class CommunicationThread {
 public:
  // `job(i)` runs in either thread. Both callables outlive this object.
  CommunicationThread(int count, std::function<int(int)> signals_needed,
                      std::function<absl::Status(int)> job);
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  void StartStep();
  // `signals` signals have been given in this step. `wake` = false when Await follows at once: the
  // jobs are left to it.
  void Signal(int signals, bool wake = true);
  // Blocks until `jobs` jobs of this step are done; the first error of any of them.
  absl::Status Await(int jobs);
  // Jobs not yet started are skipped; Await then returns. After an error of the compute thread.
  void CancelStep();
  // Waits for all jobs that were signalled. Ends every StartStep.
  absl::Status FinishStep();

 private:
  void Loop();
  // Runs the jobs that are ready and come before `limit`, unless the other thread is at it.
  void RunReady(int64_t limit);
  void RunNext(int64_t next);
  void Wake();
  void WaitUntilDone(int64_t jobs);

  const int count_;
  const std::function<int(int)> signals_needed_;
  const std::function<absl::Status(int)> job_;
  // Jobs are numbered through all steps; this step's are [begin_, begin_ + count_).
  std::atomic<int64_t> begin_{0};
  std::atomic<int64_t> ready_{0};     // jobs that may start; written by the compute thread
  std::atomic<int64_t> done_{0};      // jobs that ended; written by who holds `running_`
  std::atomic<bool> running_{false};  // somebody runs jobs
  std::atomic<bool> cancelled_{false};
  std::atomic<uint32_t> wakes_{0};  // what the thread sleeps on
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  absl::Status error_;  // written before `failed_` is set, once a step; read after
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_COMMUNICATION_THREAD_H_
