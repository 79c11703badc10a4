#ifndef WEFT_PLATFORM_TESTING_FAKE_PROCESS_H_
#define WEFT_PLATFORM_TESTING_FAKE_PROCESS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/process.h"

namespace weft::testing {

// Processes that do nothing: a test says what they print and when they end. Thread-safe.
//
//   FakeClock clock;
//   FakeProcessLauncher launcher(clock);
//   ... code under test calls launcher.Start(...) ...
//   launcher.Print(0, "listening");
//   launcher.Exit(0, {.signal = SIGKILL});
//   EXPECT_THAT(launcher.SignalsTo(1), ElementsAre(SIGTERM));
class FakeProcessLauncher final : public ProcessLauncher {
 public:
  // Waits go through `clock`, which must outlive the launcher and its processes.
  explicit FakeProcessLauncher(Clock& clock) : clock_(clock) {}

  absl::StatusOr<std::unique_ptr<Process>> Start(const ProcessOptions& options) override;

  // The next Start fails with this status.
  void FailNextStart(absl::Status status);

  // The processes started so far, in order; `index` below counts them from 0.
  std::vector<ProcessOptions> started();

  // A line on the standard output of a process.
  void Print(int index, std::string line);

  // Ends a process. SIGKILL, and the destruction of its handle, end it too.
  void Exit(int index, ExitStatus status);

  std::vector<int> SignalsTo(int index);

 private:
  class FakeProcess;

  // What launcher and handle share: either may be destroyed first.
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<ExitStatus> exit_status ABSL_GUARDED_BY(mutex);
    std::deque<std::string> lines ABSL_GUARDED_BY(mutex);
    std::vector<int> signals ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<State> StateOf(int index);

  Clock& clock_;
  Mutex mutex_;
  absl::Status next_failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProcessOptions> started_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<State>> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_PLATFORM_TESTING_FAKE_PROCESS_H_
