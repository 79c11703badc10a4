// TaskThread: a thread that runs tasks of others, one after the other.
#ifndef WEFT_PLATFORM_TASK_THREAD_H_
#define WEFT_PLATFORM_TASK_THREAD_H_

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "platform/mutex.h"

namespace weft {

// From now on, the calling thread gets the least of the processors that others want, too (the 19 of
// nice, of this thread alone).
void GiveWayToOthers();

// Runs `body` on this thread and, at the same time, on `threads` - 1 others that are there for this
// call alone; returns when all have ended. Fewer where the system gives no more: so each takes a
// piece of the work while there is one. No kernel's loop is run so (ops/kernels/cpu/blocks).
void RunOnThreads(int threads, absl::FunctionRef<void()> body);

// For work that is quicker on the same thread each time, whoever asks for it: its helper threads
// and what they have in their caches are still there. Thread-safe; tasks run one at a time.
class TaskThread {
 public:
  TaskThread() = default;
  // REQUIRES: no task is running.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Runs `task` on the thread, which is started by the first one, and returns when it has ended.
  // Where the system gives no thread, the calling one runs it.
  void Run(absl::FunctionRef<void()> task);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  // The task that waits or runs; null: none.
  const absl::FunctionRef<void()>* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_PLATFORM_TASK_THREAD_H_
