#include "ops/custom/trial_load.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/file_descriptor.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr size_t kLongestText = 4000;  // less than what a pipe holds
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

// What the copy says: the code as a byte, then the text.
std::string Report(const absl::Status& status) {
  const std::string text(status.message().substr(0, kLongestText));
  return absl::StrCat(std::string(1, static_cast<char>(status.code())), text);
}

absl::Status Thrown(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("its code threw an exception while it was loaded",
                                                 what == nullptr ? "" : ": ",
                                                 what == nullptr ? "" : what));
}

// Ends the copy with what it has to say.
[[noreturn]] void Answer(int answer, const absl::Status& status) {
  const std::string report = Report(status);
  const bool written =
      write(answer, report.data(), report.size()) == static_cast<ssize_t>(report.size());
  _exit(written ? EXIT_SUCCESS : EXIT_FAILURE);
}

int terminate_answer = -1;  // of the copy

// No exception passes the loader of libraries: the copy ends here, as the process would.
[[noreturn]] void OnTerminate() {
  const std::exception_ptr thrown = std::current_exception();
  if (thrown == nullptr) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    Answer(terminate_answer, Thrown(error.what()));
  } catch (...) {
    Answer(terminate_answer, Thrown(nullptr));
  }
}

[[noreturn]] void RunCopy(const std::function<absl::Status()>& load, int answer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, stream);
  // Handlers of this program are of no use to the copy.
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(fatal, SIG_DFL);
  terminate_answer = answer;
  std::set_terminate(&OnTerminate);
  Answer(answer, load());
}

// All that the copy says, until it ends or is late.
std::string ReadReport(const FileDescriptor& pipe, absl::Time deadline, bool& is_late) {
  std::string report;
  char buffer[1024];
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd polled = {pipe.get(), POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    if (ready == 0 && left <= 0) {
      is_late = true;
      return report;
    }
    if (ready <= 0) continue;
    const ssize_t count = read(pipe.get(), buffer, sizeof(buffer));
    if (count > 0) report.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return report;
  }
}

absl::Status EndedBy(int end) {
  if (WIFSIGNALED(end)) {
    const int signal = WTERMSIG(end);
    return absl::InvalidArgumentError(absl::StrCat("its code ended the process by signal ", signal,
                                                   " (", strsignal(signal), ") while it was loaded",
                                                   signal == SIGBUS ? "; is the file whole?" : ""));
  }
  return absl::InvalidArgumentError(absl::StrCat("its code ended the process with exit code ",
                                                 WEXITSTATUS(end), " while it was loaded"));
}

}  // namespace

absl::Status TryApart(const std::function<absl::Status()>& load, absl::Duration patience) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError(errno, "open a pipe for", "a trial");
  const FileDescriptor answer(ends[0]);
  FileDescriptor question(ends[1]);
  const pid_t copy = fork();
  if (copy < 0) return SystemError(errno, "start a process for", "a trial");
  if (copy == 0) RunCopy(load, question.get());
  question.Close();
  bool is_late = false;
  const std::string report = ReadReport(answer, absl::Now() + patience, is_late);
  if (is_late) kill(copy, SIGKILL);
  int end = 0;
  while (waitpid(copy, &end, 0) < 0 && errno == EINTR) {
  }
  if (is_late) {
    return absl::InvalidArgumentError(absl::StrCat("its code has not ended in ",
                                                   absl::FormatDuration(patience),
                                                   ", while it was loaded: does it loop?"));
  }
  const int code = report.empty() ? -1 : static_cast<unsigned char>(report.front());
  const bool answered = WIFEXITED(end) && WEXITSTATUS(end) == EXIT_SUCCESS && code >= 0;
  if (!answered || code > kLastCode) return EndedBy(end);
  return absl::Status(static_cast<absl::StatusCode>(code), report.substr(1));
}

}  // namespace weft
