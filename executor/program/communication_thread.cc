#include "executor/program/communication_thread.h"

#include <utility>

namespace weft {

// `ready_`, `running_` and `done_` are stored and read in one total order (seq_cst): who gives
// `running_` back looks at `ready_` once more, so a job that became ready meanwhile is not missed.

CommunicationThread::CommunicationThread(int count, std::function<int(int)> signals_needed,
                                         std::function<absl::Status(int)> job)
    : count_(count),
      signals_needed_(std::move(signals_needed)),
      job_(std::move(job)),
      thread_([this] { Loop(); }) {}

CommunicationThread::~CommunicationThread() {
  stopping_.store(true);
  Wake();
  thread_.join();
}

void CommunicationThread::Wake() {
  wakes_.fetch_add(1);
  wakes_.notify_one();
}

void CommunicationThread::StartStep() {
  const int64_t begin = begin_.load() + count_;
  error_ = absl::OkStatus();
  cancelled_.store(false);
  failed_.store(false);
  begin_.store(begin);
  done_.store(begin);
  ready_.store(begin);
  Signal(0);
}

void CommunicationThread::Signal(int signals, bool wake) {
  const int64_t begin = begin_.load(std::memory_order_relaxed);
  const int64_t before = ready_.load(std::memory_order_relaxed);
  int64_t ready = before;
  while (ready < begin + count_ && signals_needed_(static_cast<int>(ready - begin)) <= signals) {
    ++ready;
  }
  if (ready == before) return;
  ready_.store(ready);
  if (wake) Wake();
}

absl::Status CommunicationThread::Await(int jobs) {
  const int64_t target = begin_.load(std::memory_order_relaxed) + jobs;
  RunReady(target);
  if (done_.load() < ready_.load() && !running_.load()) Wake();  // later jobs need not wait for us
  WaitUntilDone(target);
  return failed_.load() ? error_ : absl::OkStatus();
}

void CommunicationThread::CancelStep() {
  cancelled_.store(true);
  ready_.store(begin_.load() + count_);
  Wake();
}

absl::Status CommunicationThread::FinishStep() {
  const int64_t signalled = ready_.load();
  RunReady(signalled);
  WaitUntilDone(signalled);
  // The other thread may still be on its way out.
  while (running_.load()) running_.wait(true);
  return failed_.load() ? error_ : absl::OkStatus();
}

void CommunicationThread::WaitUntilDone(int64_t jobs) {
  for (int64_t done = done_.load(); done < jobs; done = done_.load()) done_.wait(done);
}

void CommunicationThread::Loop() {
  while (!stopping_.load()) {
    const uint32_t seen = wakes_.load();
    RunReady(INT64_MAX);
    if (!stopping_.load()) wakes_.wait(seen);
  }
}

void CommunicationThread::RunReady(int64_t limit) {
  const auto next = [&] {
    const int64_t done = done_.load();
    return done < ready_.load() && done < limit ? done : -1;
  };
  while (next() >= 0) {
    if (running_.exchange(true)) return;
    for (int64_t job = next(); job >= 0; job = next()) RunNext(job);
    running_.store(false);
    running_.notify_all();
  }
}

void CommunicationThread::RunNext(int64_t next) {
  const int64_t begin = begin_.load(std::memory_order_relaxed);
  absl::Status status = cancelled_.load() ? absl::CancelledError("the step was cancelled")
                                          : job_(static_cast<int>(next - begin));
  const bool failed = !status.ok();
  if (failed) {
    error_ = std::move(status);
    failed_.store(true);
  }
  // After a failure all jobs of the step count as done.
  done_.store(failed ? begin + count_ : next + 1);
  done_.notify_all();
}

}  // namespace weft
