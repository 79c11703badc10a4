#include "platform/task_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <vector>

namespace weft {

void GiveWayToOthers() {
  constexpr int kLowestPriority = 19;
  // On Linux, that of one thread.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
}

void RunOnThreads(int threads, absl::FunctionRef<void()> body) {
  std::vector<std::thread> helpers;
  try {
    while (static_cast<int>(helpers.size()) + 1 < threads) helpers.emplace_back([body] { body(); });
  } catch (const std::system_error&) {
    // Those that are there do it.
  }
  body();
  for (std::thread& helper : helpers) helper.join();
}

TaskThread::~TaskThread() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.join();
}

void TaskThread::Run(absl::FunctionRef<void()> task) {
  {
    MutexLock lock(mutex_);
    while (task_ != nullptr) changed_.Wait(mutex_);
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
      task_ = &task;
    } catch (const std::system_error&) {
    }
    if (task_ != nullptr) {
      changed_.NotifyAll();
      while (task_ == &task) changed_.Wait(mutex_);
      return;
    }
  }
  task();
}

void TaskThread::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (task_ == nullptr && !stopping_) changed_.Wait(mutex_);
    if (stopping_) return;
    const absl::FunctionRef<void()> task = *task_;
    mutex_.Unlock();
    task();
    mutex_.Lock();
    task_ = nullptr;
    changed_.NotifyAll();
  }
}

}  // namespace weft
