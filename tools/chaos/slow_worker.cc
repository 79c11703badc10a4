#include "tools/chaos/slow_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "platform/file_descriptor.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr int64_t kPeriodMicros = 100'000;
constexpr int64_t kRunMicros = 20'000;

// Files of the kernel are written in place.
absl::Status WriteInPlace(const std::string& path, absl::string_view text) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return SystemError(errno, "open", path);
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return SystemError(errno, "write", path);
  }
  return absl::OkStatus();
}

// Where the hierarchy of a controller is mounted; "" = nowhere. A line of mountinfo ends in
// "- TYPE SOURCE OPTIONS", and its fifth word is the folder; proc(5).
std::string MountOf(absl::string_view mountinfo, bool version1) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> words = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> type = absl::StrSplit(halves.second, ' ');
    if (words.size() < 5 || type.size() < 3) continue;
    const std::vector<absl::string_view> options = absl::StrSplit(type[2], ',');
    const bool has_cpu = std::find(options.begin(), options.end(), "cpu") != options.end();
    if (version1 ? type[0] == "cgroup" && has_cpu : type[0] == "cgroup2") {
      return std::string(words[4]);
    }
  }
  return "";
}

// The path of this process's group in the hierarchy. Lines are "NUMBER:CONTROLLERS:PATH";
// cgroups(7).
std::optional<std::string> GroupPath(absl::string_view cgroup, bool version1) {
  for (const absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool has_cpu =
        std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (version1 ? has_cpu : parts[0] == "0") {
      return std::string(absl::StripSuffix(parts[2], "/"));
    }
  }
  return std::nullopt;
}

}  // namespace

SlowWorker::SlowWorker(FileSystem& files, int64_t id, std::function<bool(int signal)> signal)
    : files_(files), signal_(std::move(signal)) {
  if (const absl::Status made = MakeGroup(id); !made.ok()) {
    why_no_group_ = std::string(made.message());
    if (!group_.empty()) rmdir(group_.c_str());
    group_ = "";
  }
}

SlowWorker::~SlowWorker() {
  End();
  if (group_.empty()) return;
  // Back where it was, so that the group is empty. Of version 2, a group with groups below it takes
  // no process; then it goes when the process has ended.
  if (const auto members = files_.ReadFileUpTo(group_ + "/cgroup.procs", 1 << 20); members.ok()) {
    for (const absl::string_view member : absl::StrSplit(*members, '\n', absl::SkipEmpty())) {
      WriteInPlace(parent_ + "/cgroup.procs", member).IgnoreError();
    }
  }
  rmdir(group_.c_str());
}

absl::Status SlowWorker::MakeGroup(int64_t id) {
  constexpr int64_t kLongest = int64_t{1} << 20;
  WEFT_ASSIGN_OR_RETURN(const std::string mounts,
                        files_.ReadFileUpTo("/proc/self/mountinfo", kLongest));
  WEFT_ASSIGN_OR_RETURN(const std::string groups,
                        files_.ReadFileUpTo("/proc/self/cgroup", kLongest));
  const bool version1 = !MountOf(mounts, true).empty();
  const std::string mount = MountOf(mounts, version1);
  const std::optional<std::string> path = GroupPath(groups, version1);
  if (mount.empty() || !path.has_value()) {
    return absl::UnavailableError("this machine has no control groups of the processor");
  }
  parent_ = absl::StrCat(mount, *path);
  if (!version1) {
    // Fails where processes are in the group itself; then the file below is missing.
    WriteInPlace(parent_ + "/cgroup.subtree_control", "+cpu").IgnoreError();
  }
  group_ = absl::StrCat(parent_, "/weft-chaos-", CurrentProcessId(), "-", id);
  if (mkdir(group_.c_str(), 0755) != 0) {
    const absl::Status error = SystemError(errno, "make the control group", group_);
    group_ = "";
    return error;
  }
  WEFT_RETURN_IF_ERROR(WriteQuota(true));
  return WriteInPlace(group_ + "/cgroup.procs", std::to_string(id));
}

absl::Status SlowWorker::WriteQuota(bool limited) const {
  if (files_.Exists(group_ + "/cpu.max")) {
    return WriteInPlace(group_ + "/cpu.max", limited ? absl::StrCat(kRunMicros, " ", kPeriodMicros)
                                                     : absl::StrCat("max ", kPeriodMicros));
  }
  if (limited) {
    WEFT_RETURN_IF_ERROR(
        WriteInPlace(group_ + "/cpu.cfs_period_us", std::to_string(kPeriodMicros)));
  }
  return WriteInPlace(group_ + "/cpu.cfs_quota_us", limited ? std::to_string(kRunMicros) : "-1");
}

void SlowWorker::Turn(absl::Time now) {
  if (has_ended_ || !group_.empty()) return;
  const bool stopped = absl::ToUnixMicros(now) % kPeriodMicros >= kRunMicros;
  if (stopped == is_stopped_) return;
  is_stopped_ = stopped;
  if (!signal_(stopped ? SIGSTOP : SIGCONT)) has_ended_ = true;
}

void SlowWorker::End() {
  if (std::exchange(has_ended_, true)) return;
  if (!group_.empty()) {
    WriteQuota(false).IgnoreError();
  } else if (is_stopped_) {
    signal_(SIGCONT);
  }
}

}  // namespace weft
