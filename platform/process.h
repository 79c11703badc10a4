// ProcessLauncher and Process: starts child processes and ends them.
#ifndef WEFT_PLATFORM_PROCESS_H_
#define WEFT_PLATFORM_PROCESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft {

// How a process ended: by itself with an exit code, or by a signal.
struct ExitStatus {
  int code = 0;    // 0 to 255; meaningless when `signal` is not 0.
  int signal = 0;  // The signal that killed it, or 0.

  bool success() const { return code == 0 && signal == 0; }
  // "exit code 3" or "killed by signal 9 (Killed)".
  std::string DebugString() const;

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// Where an output stream of a process goes.
struct ProcessOutput {
  enum class Kind {
    kInherit,  // Where this process's own stream goes.
    kFile,     // To the end of the file `path`, created when missing.
    kPipe,     // To Process::ReadLine. A child blocks when nobody reads: some 64 KiB fit.
    kDiscard,
  };
  Kind kind = Kind::kInherit;
  std::string path = {};  // For kFile.
};

// Which program a ProcessLauncher starts, and how.
struct ProcessOptions {
  // The executable's path (never looked up in PATH) and its arguments; at least one.
  std::vector<std::string> arguments;
  // Variables that the child sees on top of, or in place of, this process's own.
  std::vector<std::pair<std::string, std::string>> environment = {};
  ProcessOutput standard_output = {};
  ProcessOutput standard_error = {};  // kPipe is for standard output alone.
  // A process group of its own: Ctrl-C in the terminal reaches this process, not the child.
  bool own_process_group = false;
};

// A started child process. Owned by who started it; the destructor kills it (SIGKILL) when it still
// runs and waits for its end, so none is left behind. Thread-safe, except that only one thread
// reads lines.
class Process {
 public:
  virtual ~Process() = default;

  virtual int64_t id() const = 0;

  // How it ended, or nothing while it runs. Never blocks.
  virtual std::optional<ExitStatus> Poll() = 0;

  // Whether a signal (SIGSTOP, SIGTSTP) has stopped it, so that it answers nothing until SIGCONT.
  virtual bool IsStopped() = 0;

  // Waits for its end until `deadline`; nothing when it still runs then.
  virtual std::optional<ExitStatus> WaitUntil(absl::Time deadline) = 0;

  // Sends a signal. FailedPrecondition once it has ended.
  virtual absl::Status Signal(int signal) = 0;

  // The next line of its standard output (kPipe), without the line end. DeadlineExceeded when none
  // came in time; OutOfRange after the last; FailedPrecondition without a pipe.
  virtual absl::StatusOr<std::string> ReadLine(absl::Time deadline) = 0;
};

// Starts processes. Thread-safe.
class ProcessLauncher {
 public:
  virtual ~ProcessLauncher() = default;

  // The child gets /dev/null as standard input, no other open files, default signal handling.
  //
  // With DieWithParent in the child, the calling *thread* must outlive it: Linux sends the signal
  // when the thread that started the child ends, not only with the process.
  virtual absl::StatusOr<std::unique_ptr<Process>> Start(const ProcessOptions& options) = 0;
};

// Starts children of this process with posix_spawn. There is no fork: OpenMP and gRPC do not
// survive it.
ProcessLauncher& RealProcessLauncher();

// The path of the executable that this process runs, to start it again.
absl::StatusOr<std::string> CurrentExecutable();

// The id of this process.
int64_t CurrentProcessId();

// For a child, first thing in its main: asks the kernel to kill (SIGKILL) this process when its
// parent ends. `expected_parent_id` is the parent's id as it passed it on. Aborted when the parent
// is gone already: exit then.
absl::Status DieWithParent(int64_t expected_parent_id);

}  // namespace weft

#endif  // WEFT_PLATFORM_PROCESS_H_
