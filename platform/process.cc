#include "platform/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "platform/child_start.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

// For poll(2): milliseconds until `deadline`, rounded up; -1 for ever.
int PollTimeout(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(milliseconds, 0, INT_MAX));
}

// Waits until `descriptor` can be read; false when the deadline has passed.
bool AwaitReadable(const FileDescriptor& descriptor, absl::Time deadline) {
  while (true) {
    pollfd request = {.fd = descriptor.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&request, 1, PollTimeout(deadline));
    if (ready > 0) return true;
    if (ready == 0 && absl::Now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

class ChildProcess final : public Process {
 public:
  ChildProcess(pid_t id, FileDescriptor handle, FileDescriptor output)
      : id_(id), handle_(std::move(handle)), output_(std::move(output)) {}

  ~ChildProcess() override {
    if (Poll().has_value()) return;
    Signal(SIGKILL).IgnoreError();
    WaitUntil(absl::InfiniteFuture());
  }

  int64_t id() const override { return id_; }

  std::optional<ExitStatus> Poll() override {
    MutexLock lock(mutex_);
    if (exit_status_.has_value()) return exit_status_;
    siginfo_t info = {};
    int result = -1;
    do {
      result = waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG);
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
      // Somebody else reaped it (SIGCHLD ignored, a foreign waitpid): its end is known, not its
      // kind.
      exit_status_ = ExitStatus{.code = 255};
    } else if (info.si_pid == id_) {
      exit_status_ = info.si_code == CLD_EXITED ? ExitStatus{.code = info.si_status}
                                                : ExitStatus{.signal = info.si_status};
    }
    return exit_status_;
  }

  bool IsStopped() override {
    MutexLock lock(mutex_);
    if (exit_status_.has_value()) return false;
    siginfo_t info = {};
    // Looks only: a stop that was waited for is not told again.
    const int result = waitid(P_PID, static_cast<id_t>(id_), &info, WSTOPPED | WNOHANG | WNOWAIT);
    return result == 0 && info.si_pid == id_ && info.si_code == CLD_STOPPED;
  }

  std::optional<ExitStatus> WaitUntil(absl::Time deadline) override {
    // The handle becomes readable when the process ends.
    AwaitReadable(handle_, deadline);
    return Poll();
  }

  absl::Status Signal(int signal) override {
    MutexLock lock(mutex_);  // Until it is reaped, its id cannot name another process.
    if (exit_status_.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("process ", id_, " has ended already (", exit_status_->DebugString(), ")"));
    }
    if (kill(id_, signal) != 0) return SystemError(errno, "signal process", std::to_string(id_));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadLine(absl::Time deadline) override {
    if (!output_.valid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the output of process ", id_, " was not connected to a pipe"));
    }
    while (true) {
      const size_t end = unread_.find('\n');
      if (end != std::string::npos) return TakeLine(end, end + 1);
      if (!AwaitReadable(output_, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("process ", id_, " printed no further line in time"));
      }
      std::array<char, 4096> buffer;
      const ssize_t got = read(output_.get(), buffer.data(), buffer.size());
      if (got > 0) unread_.append(buffer.data(), static_cast<size_t>(got));
      if (got < 0 && errno != EINTR) return SystemError(errno, "read the output of", "a process");
      if (got == 0 && unread_.empty()) {
        return absl::OutOfRangeError(absl::StrCat("process ", id_, " closed its output"));
      }
      if (got == 0) return TakeLine(unread_.size(), unread_.size());
    }
  }

 private:
  std::string TakeLine(size_t length, size_t consumed) {
    std::string line = unread_.substr(0, length);
    unread_.erase(0, consumed);
    return line;
  }

  const pid_t id_;
  const FileDescriptor handle_;
  const FileDescriptor output_;
  std::string unread_;  // Of the one thread that reads lines.
  Mutex mutex_;
  std::optional<ExitStatus> exit_status_ ABSL_GUARDED_BY(mutex_);
};

// What a child's output stream becomes; `descriptor` is invalid for "as it is here".
struct OutputEnds {
  FileDescriptor child;
  FileDescriptor parent;  // The reading end of a pipe.
};

absl::StatusOr<OutputEnds> OpenOutput(const ProcessOutput& output) {
  OutputEnds ends;
  switch (output.kind) {
    case ProcessOutput::Kind::kInherit:
      return ends;
    case ProcessOutput::Kind::kPipe: {
      int pair[2] = {-1, -1};
      if (pipe2(pair, O_CLOEXEC) != 0) return SystemError(errno, "open", "a pipe");
      ends.parent = FileDescriptor(pair[0]);
      ends.child = FileDescriptor(pair[1]);
      return ends;
    }
    case ProcessOutput::Kind::kFile:
    case ProcessOutput::Kind::kDiscard: {
      const bool discard = output.kind == ProcessOutput::Kind::kDiscard;
      const std::string path = discard ? "/dev/null" : output.path;
      ends.child =
          FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
      if (!ends.child.valid()) return SystemError(errno, "open for a process to write", path);
      return ends;
    }
  }
  return ends;
}

// This process's environment with the additions, as "NAME=value".
std::vector<std::string> MergedEnvironment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    merged[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  }
  for (const auto& [name, value] : additions) merged[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : merged) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

// posix_spawn of `options` with these two outputs. Returns the child's id.
absl::StatusOr<pid_t> Spawn(const ProcessOptions& options, const OutputEnds& output,
                            const OutputEnds& error) {
  ChildStart start(options.own_process_group);
  posix_spawn_file_actions_addopen(&start.files(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const auto connect = [&start](const OutputEnds& ends, int stream) {
    if (!ends.child.valid()) return;
    posix_spawn_file_actions_adddup2(&start.files(), ends.child.get(), stream);
  };
  connect(output, STDOUT_FILENO);
  connect(error, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&start.files(), STDERR_FILENO + 1);
  return start.Spawn(options.arguments[0], options.arguments,
                     MergedEnvironment(options.environment));
}

class SpawningLauncher final : public ProcessLauncher {
 public:
  absl::StatusOr<std::unique_ptr<Process>> Start(const ProcessOptions& options) override {
    if (options.arguments.empty()) {
      return absl::InvalidArgumentError("a process needs the path of its executable");
    }
    if (options.standard_error.kind == ProcessOutput::Kind::kPipe) {
      return absl::InvalidArgumentError("only the standard output of a process can be a pipe");
    }
    WEFT_ASSIGN_OR_RETURN(OutputEnds output, OpenOutput(options.standard_output));
    WEFT_ASSIGN_OR_RETURN(const OutputEnds error, OpenOutput(options.standard_error));
    WEFT_ASSIGN_OR_RETURN(const pid_t id, Spawn(options, output, error));
    FileDescriptor handle(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
    if (!handle.valid()) {
      const absl::Status status = SystemError(errno, "watch", options.arguments[0]);
      kill(id, SIGKILL);
      waitpid(id, nullptr, 0);
      return status;
    }
    return std::make_unique<ChildProcess>(id, std::move(handle), std::move(output.parent));
  }
};

}  // namespace

std::string ExitStatus::DebugString() const {
  if (signal == 0) return absl::StrCat("exit code ", code);
  const char* const description = sigdescr_np(signal);
  return absl::StrCat("killed by signal ", signal, " (",
                      description == nullptr ? "unknown" : description, ")");
}

ProcessLauncher& RealProcessLauncher() {
  static SpawningLauncher* const launcher = new SpawningLauncher;  // Never destroyed.
  return *launcher;
}

absl::StatusOr<std::string> CurrentExecutable() {
  constexpr char kLink[] = "/proc/self/exe";
  std::array<char, PATH_MAX> buffer;
  const ssize_t length = readlink(kLink, buffer.data(), buffer.size());
  if (length < 0) return SystemError(errno, "read the link", kLink);
  std::string path(buffer.data(), static_cast<size_t>(length));
  if (absl::EndsWith(path, " (deleted)")) {
    return absl::NotFoundError(
        absl::StrCat("the executable of this process is gone: \"", absl::Utf8SafeCEscape(path),
                     "\"; it was removed or replaced since the start: start the command again"));
  }
  return path;
}

int64_t CurrentProcessId() { return getpid(); }

absl::Status DieWithParent(int64_t expected_parent_id) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return SystemError(errno, "tie to its parent", "this process");
  }
  // The parent may have ended before the call above: then this process has a new one.
  if (getppid() == expected_parent_id) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("the parent process ", expected_parent_id,
                   " ended before this one was ready; nothing is left to do"));
}

}  // namespace weft
