#include "platform/mutex.h"

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, 40000);
}

TEST(Mutex, TryLockFailsWhileHeld) {
  Mutex mutex;
  mutex.Lock();
  std::thread other([&mutex] {
    const bool locked = mutex.TryLock();
    if (locked) mutex.Unlock();
    EXPECT_FALSE(locked);
  });
  other.join();
  mutex.Unlock();
}

TEST(CondVar, WaitSeesWhatTheNotifierDid) {
  Counter counter;
  std::thread producer([&counter] {
    MutexLock lock(counter.mutex);
    counter.value = 1;
    counter.changed.NotifyOne();
  });
  {
    MutexLock lock(counter.mutex);
    while (counter.value == 0) counter.changed.Wait(counter.mutex);
    EXPECT_EQ(counter.value, 1);
  }
  producer.join();
}

TEST(CondVar, WaitUntilEndsAtItsDeadline) {
  Mutex mutex;
  CondVar never;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(20);
  MutexLock lock(mutex);
  while (never.WaitUntil(mutex, deadline)) {
  }
  EXPECT_GE(absl::Now(), deadline);
}

TEST(CondVar, WaitUntilReturnsAtOnceWhenTheDeadlineHasPassed) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  EXPECT_FALSE(never.WaitUntil(mutex, absl::Now() - absl::Seconds(1)));
  EXPECT_FALSE(never.WaitUntil(mutex, absl::InfinitePast()));
}

TEST(CondVar, WaitUntilTheInfiniteFutureEndsByNotification) {
  Counter counter;
  std::thread producer([&counter] {
    MutexLock lock(counter.mutex);
    counter.value = 1;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(counter.mutex);
    while (counter.value == 0) {
      EXPECT_TRUE(counter.changed.WaitUntil(counter.mutex, absl::InfiniteFuture()));
    }
  }
  producer.join();
}

}  // namespace
}  // namespace weft
