// An observer that a test can wait on.
#ifndef WEFT_DISTRIBUTED_TESTING_AWAITED_TRANSFER_H_
#define WEFT_DISTRIBUTED_TESTING_AWAITED_TRANSFER_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft::testing {

class AwaitedTransfer final : public TransferObserver {
 public:
  void Done(const absl::Status& status) override {
    MutexLock lock(mutex_);
    ++calls_;
    status_ = status;
    changed_.NotifyAll();
  }
  // DeadlineExceeded after half a minute: nothing in a test takes that long.
  absl::Status Await() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(mutex_);
    while (calls_ == 0) {
      if (!changed_.WaitUntil(mutex_, deadline)) return absl::DeadlineExceededError("no Done");
    }
    return status_;
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_AWAITED_TRANSFER_H_
