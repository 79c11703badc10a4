#include "ops/custom/isolation/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/custom/isolation/op_helper.h"
#include "platform/child_start.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "platform/task_thread.h"

namespace weft {
namespace {

constexpr char kHelperMark[] = "WEFT_OP_HELPER";  // a variable that every helper has

// Variables that a helper gets, by name or, with '*', by their begin. Those of OpenMP that bind
// threads to processors are not among them: a helper may not do that.
bool IsPassedOn(absl::string_view entry) {
  static constexpr const char* kNames[] = {"LD_LIBRARY_PATH=",
                                           "LD_PRELOAD=",
                                           "LANG=",
                                           "LC_*",
                                           "TZ=",
                                           "OMP_WAIT_POLICY=",
                                           "OMP_NUM_THREADS=",
                                           "GOMP_SPINCOUNT=",
                                           "GLIBC_TUNABLES=",
                                           "MALLOC_*",

                                           "UBSAN_OPTIONS=",
                                           "TSAN_OPTIONS=",
                                           "WEFT_*"};
  return std::any_of(std::begin(kNames), std::end(kNames), [entry](absl::string_view name) {
    return absl::StartsWith(entry, absl::StripSuffix(name, "*"));
  });
}

std::vector<std::string> EnvironmentOfHelper() {
  std::vector<std::string> entries = {absl::StrCat(kHelperMark, "=1")};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (IsPassedOn(*entry)) entries.emplace_back(*entry);
  }
  // Of AddressSanitizer: its search for leaks starts a process, which a helper may not.
  const char* const asan = std::getenv("ASAN_OPTIONS");
  entries.push_back(absl::StrCat("ASAN_OPTIONS=", asan == nullptr ? "" : asan, ":detect_leaks=0"));
  return entries;
}

// The thread that starts all helpers of this process: the system kills a child when the thread that
// started it ends, and this one never does.
TaskThread& StartingThread() {
  static auto* const thread = new TaskThread;
  return *thread;
}

// For spawn: what stands in the way of the numbers that a helper's descriptors get is moved.
absl::StatusOr<FileDescriptor> Moved(int descriptor) {
  FileDescriptor moved(fcntl(descriptor, F_DUPFD_CLOEXEC, kHelperImage + 1));
  if (!moved.valid()) return SystemError(errno, "copy", "a descriptor");
  return moved;
}

absl::StatusOr<pid_t> SpawnHelper(const std::string& program, int channel, int image) {
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor moved_channel, Moved(channel));
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor moved_image, Moved(image));
  ChildStart start(/*own_process_group=*/true);  // Ctrl-C in a terminal is for the worker
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&start.files(), stream, "/dev/null", O_RDWR, 0);
  }
  posix_spawn_file_actions_adddup2(&start.files(), moved_channel.get(), kHelperChannel);
  posix_spawn_file_actions_adddup2(&start.files(), moved_image.get(), kHelperImage);
  posix_spawn_file_actions_addclosefrom_np(&start.files(), kHelperImage + 1);
  absl::StatusOr<pid_t> id;
  StartingThread().Run([&] {
    id = start.Spawn(program, {program, kOpHelperArgument, absl::StrCat(CurrentProcessId())},
                     EnvironmentOfHelper(), "start the helper of an op library");
  });
  return id;
}

// "SIGSEGV"
std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace

HelperProcess::HelperProcess(pid_t id, FileDescriptor handle, FileDescriptor channel)
    : id_(id), handle_(std::move(handle)), channel_(std::move(channel), false) {}

HelperProcess::~HelperProcess() { End(absl::ZeroDuration(), ""); }

absl::StatusOr<std::unique_ptr<HelperProcess>> HelperProcess::Start(const std::string& program,
                                                                    const FileDescriptor& image) {
  if (std::getenv(kHelperMark) != nullptr) {
    return absl::FailedPreconditionError(
        "this process is itself the helper of an op library, and starts none");
  }
  std::string executable = program;
  if (executable.empty()) {
    WEFT_RETURN_IF_ERROR(CurrentExecutable().status());
    executable = "/proc/self/exe";
  }
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError(errno, "make", "a channel to the helper of an op library");
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  WEFT_ASSIGN_OR_RETURN(const pid_t id, SpawnHelper(executable, theirs.get(), image.get()));
  FileDescriptor handle(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  if (!handle.valid()) {
    const absl::Status status = SystemError(errno, "watch", executable);
    kill(id, SIGKILL);
    waitpid(id, nullptr, 0);
    return status;
  }
  return std::unique_ptr<HelperProcess>(new HelperProcess(id, std::move(handle), std::move(ours)));
}

std::string HelperProcess::End(absl::Duration patience, const std::string& alive) {
  if (has_ended_) return alive;
  pollfd polled = {handle_.get(), POLLIN, 0};
  int ready = -1;
  do {
    ready = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) kill(id_, SIGKILL);
  int end = 0;
  while (waitpid(id_, &end, 0) < 0 && errno == EINTR) {
  }
  has_ended_ = true;
  if (ready <= 0) return alive;
  if (WIFSIGNALED(end)) return absl::StrCat("died of ", SignalName(WTERMSIG(end)));
  return absl::StrCat("ended its process with exit code ", WEXITSTATUS(end));
}

}  // namespace weft
