// Mutex, MutexLock, CondVar: locks that thread-safety analysis and ThreadSanitizer understand.
#ifndef WEFT_PLATFORM_MUTEX_H_
#define WEFT_PLATFORM_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace weft {

// A std::mutex that Clang's thread-safety analysis understands (annotate what it protects with
// ABSL_GUARDED_BY) and ThreadSanitizer sees into; the system's absl::Mutex is built without it.
// Not recursive, not shared.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

  // Tells the analysis, where it cannot see it, that this thread holds the mutex. Checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for the length of a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex. Waits can end for no reason: call them in a loop over the
// condition. Code that can be tested with a fake clock waits through Clock::WaitUntil instead of
// WaitUntil here.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Waits until notified or until `deadline` of the system's clock; absl::InfiniteFuture() waits
  // for ever. Returns false when the deadline has passed. The time left is measured once, on entry,
  // and then runs on the monotonic clock: setting the system's clock does not stretch a wait.
  bool WaitUntil(Mutex& mutex, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace weft

#endif  // WEFT_PLATFORM_MUTEX_H_
