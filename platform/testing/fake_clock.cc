#include "platform/testing/fake_clock.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "platform/mutex.h"

namespace weft::testing {

FakeClock::FakeClock(absl::Time start) : start_(start), now_(start) {}

FakeClock::~FakeClock() {
  MutexLock lock(mutex_);
  assert(waiters_.empty());
}

absl::Time FakeClock::Now() {
  MutexLock lock(mutex_);
  return now_;
}

int64_t FakeClock::MonotonicNanos() { return absl::ToInt64Nanoseconds(Now() - start_); }

bool FakeClock::WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) {
  Waiter self = {.condition = &condition, .mutex = &mutex, .deadline = deadline};
  {
    MutexLock lock(mutex_);
    if (now_ >= deadline) return false;
    waiters_.push_back(&self);
    changed_.NotifyAll();
  }
  // No wake-up is lost here: Advance notifies only while it holds `mutex`, which this thread holds
  // from before the check above until it sleeps.
  condition.Wait(mutex);
  mutex_.Lock();
  while (self.being_woken) {
    // Advance waits for `mutex`; let it pass, so that `self` and `mutex` live as long as it needs
    // them.
    mutex.Unlock();
    changed_.Wait(mutex_);
    mutex_.Unlock();
    mutex.Lock();
    mutex_.Lock();
  }
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &self));
  const bool in_time = now_ < deadline;
  mutex_.Unlock();
  return in_time;
}

void FakeClock::Advance(absl::Duration duration) {
  std::vector<Waiter*> due;
  {
    MutexLock lock(mutex_);
    now_ += std::max(duration, absl::ZeroDuration());
    for (Waiter* waiter : waiters_) {
      if (waiter->deadline > now_ || waiter->being_woken) continue;
      waiter->being_woken = true;
      due.push_back(waiter);
    }
  }
  for (Waiter* waiter : due) {
    {
      MutexLock lock(*waiter->mutex);
      waiter->condition->NotifyAll();
    }
    MutexLock lock(mutex_);
    waiter->being_woken = false;
    changed_.NotifyAll();
  }
}

void FakeClock::AwaitWaiters(int count) {
  MutexLock lock(mutex_);
  while (static_cast<int>(waiters_.size()) < count) changed_.Wait(mutex_);
}

}  // namespace weft::testing
