#include "tools/chaos/process_tree.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "platform/file_descriptor.h"
#include "platform/process.h"
#include "platform/system_error.h"

namespace weft {
namespace {

// Of /proc/ID/stat.
struct ProcessState {
  int64_t parent = 0;
  char state = '?';  // 'Z': it has ended, and its parent has not asked how
};

std::optional<ProcessState> StateOf(FileSystem& files, int64_t id) {
  constexpr int64_t kLongestStat = 4096;
  const auto text = files.ReadFileUpTo(absl::StrCat("/proc/", id, "/stat"), kLongestStat);
  if (!text.ok()) return std::nullopt;
  // "4711 (name) S 4700 ...", where the name may hold anything.
  const size_t end = text->rfind(')');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(*text).substr(end + 1), ' ', absl::SkipEmpty());
  ProcessState state;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &state.parent)) return std::nullopt;
  state.state = words[0][0];
  return state;
}

// Ids of the processes whose state says so, in order.
template <typename Predicate>
std::vector<int64_t> ProcessesWhere(FileSystem& files, const Predicate& fits) {
  std::vector<int64_t> ids;
  const auto names = files.ListDirectory("/proc");
  if (!names.ok()) return ids;
  for (const std::string& name : *names) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(name, &id)) continue;
    const std::optional<ProcessState> state = StateOf(files, id);
    if (state.has_value() && fits(*state)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::vector<RunningProcess> ChildrenOf(FileSystem& files, int64_t parent) {
  constexpr int64_t kLongestCommand = int64_t{1} << 20;
  const std::vector<int64_t> ids = ProcessesWhere(files, [parent](const ProcessState& state) {
    return state.parent == parent && state.state != 'Z' && state.state != 'X';
  });
  std::vector<RunningProcess> children;
  for (const int64_t id : ids) {
    const auto command =
        files.ReadFileUpTo(absl::StrCat("/proc/", id, "/cmdline"), kLongestCommand);
    if (!command.ok()) continue;
    RunningProcess child;
    child.id = id;
    child.arguments = absl::StrSplit(*command, '\0');
    if (!child.arguments.empty() && child.arguments.back().empty()) child.arguments.pop_back();
    children.push_back(std::move(child));
  }
  return children;
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void ReapAdopted(FileSystem& files, const std::vector<int64_t>& known) {
  const int64_t self = CurrentProcessId();
  const std::vector<int64_t> ended = ProcessesWhere(files, [self](const ProcessState& state) {
    return state.parent == self && state.state == 'Z';
  });
  for (const int64_t id : ended) {
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    waitpid(static_cast<pid_t>(id), nullptr, WNOHANG);
  }
}

absl::Status SignalChild(FileSystem& files, int64_t parent, int64_t id, int signal) {
  // The descriptor stays that of this process. So a parent that is right after it was opened was
  // right when it was opened, or the process has been adopted since.
  const FileDescriptor handle(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  const std::optional<ProcessState> state = StateOf(files, id);
  if (!handle.valid() || !state.has_value() || state->parent != parent) {
    return absl::NotFoundError(absl::StrCat("process ", id, " has ended"));
  }
  if (syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("process ", id, " has ended"));
  return SystemError(errno, "signal process", std::to_string(id));
}

}  // namespace weft
