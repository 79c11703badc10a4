#include "executor/communication_thread.h"

#include <utility>

namespace weft {
namespace {

// More signals than any step has: lets every waiting job through.
constexpr int kAllSignals = 1 << 30;

// Counters are stored with a full barrier (seq_cst): notify looks for waiters with a plain load,
// which must not overtake the store, or a wait that begins in between would not be woken.

// Spins briefly (a wake-up costs 25 to 50 microseconds, docs/architecture.md), then sleeps.
template <typename T, typename Ready>
T WaitFor(const std::atomic<T>& counter, Ready ready) {
  constexpr int kSpins = 2000;
  T value = counter.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && !ready(value); ++i) {
    __builtin_ia32_pause();
    value = counter.load(std::memory_order_acquire);
  }
  while (!ready(value)) {
    counter.wait(value, std::memory_order_acquire);
    value = counter.load(std::memory_order_acquire);
  }
  return value;
}

}  // namespace

CommunicationThread::CommunicationThread(int count, std::function<int(int)> signals_needed,
                                         std::function<absl::Status(int)> job)
    : count_(count),
      signals_needed_(std::move(signals_needed)),
      job_(std::move(job)),
      thread_([this] { Loop(); }) {}

CommunicationThread::~CommunicationThread() {
  generation_.store(-1, std::memory_order_release);
  generation_.notify_all();
  thread_.join();
}

void CommunicationThread::StartStep() {
  signals_.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  cancelled_.store(false, std::memory_order_relaxed);
  error_ = absl::OkStatus();
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void CommunicationThread::Signal(int signals) {
  signals_.store(signals, std::memory_order_seq_cst);
  signals_.notify_all();
}

void CommunicationThread::CancelStep() {
  cancelled_.store(true, std::memory_order_release);
  Signal(kAllSignals);
}

absl::Status CommunicationThread::Await(int jobs) {
  const int done = WaitFor(done_, [jobs](int value) { return value >= jobs; });
  // After a failure the counter jumps to the end at once.
  return done > count_ ? error_ : absl::OkStatus();
}

absl::Status CommunicationThread::FinishStep() {
  const int64_t started = generation_.load(std::memory_order_relaxed);
  WaitFor(finished_, [started](int64_t value) { return value >= started; });
  return error_;
}

void CommunicationThread::Loop() {
  for (int64_t steps = 0;; ++steps) {
    const int64_t generation =
        WaitFor(generation_, [steps](int64_t value) { return value < 0 || value > steps; });
    if (generation < 0) return;
    RunStep();
    finished_.store(steps + 1, std::memory_order_release);
    finished_.notify_all();
  }
}

void CommunicationThread::RunStep() {
  for (int i = 0; i < count_; ++i) {
    const int needed = signals_needed_(i);
    WaitFor(signals_, [needed](int value) { return value >= needed; });
    absl::Status status = cancelled_.load(std::memory_order_acquire)
                              ? absl::CancelledError("the step was cancelled")
                              : job_(i);
    if (!status.ok()) {
      error_ = std::move(status);
      done_.store(count_ + 1, std::memory_order_seq_cst);
      done_.notify_all();
      return;
    }
    done_.store(i + 1, std::memory_order_seq_cst);
    done_.notify_all();
  }
}

}  // namespace weft
