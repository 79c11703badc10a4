#include "platform/testing/fake_process.h"

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/process.h"

namespace weft::testing {

class FakeProcessLauncher::FakeProcess final : public Process {
 public:
  FakeProcess(int64_t id, bool has_pipe, Clock& clock, std::shared_ptr<State> state)
      : id_(id), has_pipe_(has_pipe), clock_(clock), state_(std::move(state)) {}

  ~FakeProcess() override {
    if (!Poll().has_value()) Signal(SIGKILL).IgnoreError();
  }

  int64_t id() const override { return id_; }

  std::optional<ExitStatus> Poll() override {
    MutexLock lock(state_->mutex);
    return state_->exit_status;
  }

  // By the last of the signals that stop and continue.
  bool IsStopped() override {
    MutexLock lock(state_->mutex);
    bool stopped = false;
    for (const int signal : state_->signals) {
      if (signal == SIGSTOP) stopped = true;
      if (signal == SIGCONT) stopped = false;
    }
    return stopped && !state_->exit_status.has_value();
  }

  std::optional<ExitStatus> WaitUntil(absl::Time deadline) override {
    MutexLock lock(state_->mutex);
    while (!state_->exit_status.has_value()) {
      if (!clock_.WaitUntil(state_->changed, state_->mutex, deadline)) break;
    }
    return state_->exit_status;
  }

  absl::Status Signal(int signal) override {
    MutexLock lock(state_->mutex);
    if (state_->exit_status.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("process ", id_, " has ended already (",
                                                        state_->exit_status->DebugString(), ")"));
    }
    state_->signals.push_back(signal);
    if (signal == SIGKILL) state_->exit_status = ExitStatus{.signal = SIGKILL};
    state_->changed.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadLine(absl::Time deadline) override {
    if (!has_pipe_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the output of process ", id_, " was not connected to a pipe"));
    }
    MutexLock lock(state_->mutex);
    while (state_->lines.empty()) {
      if (state_->exit_status.has_value()) {
        return absl::OutOfRangeError(absl::StrCat("process ", id_, " closed its output"));
      }
      if (!clock_.WaitUntil(state_->changed, state_->mutex, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("process ", id_, " printed no further line in time"));
      }
    }
    std::string line = std::move(state_->lines.front());
    state_->lines.pop_front();
    return line;
  }

 private:
  const int64_t id_;
  const bool has_pipe_;
  Clock& clock_;
  const std::shared_ptr<State> state_;
};

absl::StatusOr<std::unique_ptr<Process>> FakeProcessLauncher::Start(const ProcessOptions& options) {
  constexpr int64_t kFirstId = 1000;
  MutexLock lock(mutex_);
  if (!next_failure_.ok()) return std::exchange(next_failure_, absl::OkStatus());
  const int64_t id = kFirstId + static_cast<int64_t>(started_.size());
  started_.push_back(options);
  states_.push_back(std::make_shared<State>());
  const bool has_pipe = options.standard_output.kind == ProcessOutput::Kind::kPipe;
  return std::make_unique<FakeProcess>(id, has_pipe, clock_, states_.back());
}

void FakeProcessLauncher::FailNextStart(absl::Status status) {
  MutexLock lock(mutex_);
  next_failure_ = std::move(status);
}

std::vector<ProcessOptions> FakeProcessLauncher::started() {
  MutexLock lock(mutex_);
  return started_;
}

std::shared_ptr<FakeProcessLauncher::State> FakeProcessLauncher::StateOf(int index) {
  MutexLock lock(mutex_);
  return states_.at(static_cast<size_t>(index));
}

void FakeProcessLauncher::Print(int index, std::string line) {
  const std::shared_ptr<State> state = StateOf(index);
  MutexLock lock(state->mutex);
  state->lines.push_back(std::move(line));
  state->changed.NotifyAll();
}

void FakeProcessLauncher::Exit(int index, ExitStatus status) {
  const std::shared_ptr<State> state = StateOf(index);
  MutexLock lock(state->mutex);
  if (!state->exit_status.has_value()) state->exit_status = status;
  state->changed.NotifyAll();
}

std::vector<int> FakeProcessLauncher::SignalsTo(int index) {
  const std::shared_ptr<State> state = StateOf(index);
  MutexLock lock(state->mutex);
  return state->signals;
}

}  // namespace weft::testing
