// The thread that plays a step's asynchronous collectives beside the compute list.
#ifndef WEFT_EXECUTOR_COMMUNICATION_THREAD_H_
#define WEFT_EXECUTOR_COMMUNICATION_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace weft {

// Runs `count` jobs a step, in order; job i starts when `signals_needed(i)` signals have been
// given. The compute thread gives signals and waits for jobs; both are single atomic counters, no
// locks. Every wait here ends: the compute thread signals or cancels, and a job's own waits have
// deadlines (the communicator's).
class CommunicationThread {
 public:
  // `job(i)` runs in the thread. Both callables outlive this object.
  CommunicationThread(int count, std::function<int(int)> signals_needed,
                      std::function<absl::Status(int)> job);
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  void StartStep();
  void Signal(int signals);
  // Blocks until `jobs` jobs of this step are done; the first error of any of them.
  absl::Status Await(int jobs);
  // Jobs not yet started are skipped; Await then returns. After an error of the compute thread.
  void CancelStep();
  // Waits until the thread is idle again. Ends every StartStep.
  absl::Status FinishStep();

 private:
  void Loop();
  void RunStep();

  const int count_;
  const std::function<int(int)> signals_needed_;
  const std::function<absl::Status(int)> job_;
  std::atomic<int64_t> generation_{0};  // steps started; negative = stop
  std::atomic<int64_t> finished_{0};    // steps ended
  std::atomic<int> signals_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> cancelled_{false};
  absl::Status error_;  // written by the thread before `done_` reaches count_, read after
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATION_THREAD_H_
