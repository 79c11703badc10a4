#include "platform/process_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "platform/cpu_info.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

constexpr size_t kMappedBlock = size_t{256} << 10;
constexpr int kHeaps = 2;

// Where the kernel shows control groups, and what it calls the files, in each version.
struct Hierarchy {
  const char* root;
  const char* limit;
  const char* usage;
  const char* peak;
};
constexpr Hierarchy kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                 "memory.usage_in_bytes", "memory.max_usage_in_bytes"};
constexpr Hierarchy kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "memory.peak"};

// The memory control group that this process is in.
struct ControlGroup {
  Hierarchy hierarchy;
  std::string path;  // below the root: "" or "/jobs/3"
};

std::optional<ControlGroup> FindControlGroup(FileSystem& files) {
  const absl::StatusOr<std::string> text = files.ReadFile("/proc/self/cgroup");
  if (!text.ok()) return std::nullopt;
  std::optional<ControlGroup> found;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(*text, '\n'))) {
    // "4:memory:/jobs/3" or, in version 2, "0::/jobs/3".
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool version1 =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    const std::string path = fields[2] == "/" ? "" : fields[2];
    if (version1) return ControlGroup{kVersion1, path};
    if (fields[0] == "0" && fields[1].empty()) found = ControlGroup{kVersion2, path};
  }
  return found;
}

// Nothing when there is no such file, or it says "max".
std::optional<int64_t> ReadNumber(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> text = files.ReadFile(path);
  int64_t number = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &number)) return {};
  return number;
}

// The value of a line "NAME:    1234 kB", in bytes.
int64_t StatusField(const std::string& text, const std::string& name) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (!absl::StartsWith(line, absl::StrCat(name, ":"))) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(name.size() + 1), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &kibibytes)) return kibibytes << 10;
  }
  return 0;
}

bool IsAloneIn(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::string> processes =
      files.ReadFile(absl::StrCat(folder, "/cgroup.procs"));
  return processes.ok() && absl::StripAsciiWhitespace(*processes) == absl::StrCat(getpid());
}

}  // namespace

ProcessMemory MeasureProcessMemory(FileSystem& files) {
  const std::optional<ControlGroup> group = FindControlGroup(files);
  if (group.has_value() && !group->path.empty()) {
    const std::string folder = absl::StrCat(group->hierarchy.root, group->path);
    const std::optional<int64_t> usage =
        ReadNumber(files, absl::StrCat(folder, "/", group->hierarchy.usage));
    const std::optional<int64_t> peak =
        ReadNumber(files, absl::StrCat(folder, "/", group->hierarchy.peak));
    if (usage.has_value() && peak.has_value() && IsAloneIn(files, folder)) {
      return {*usage, *peak, true};
    }
  }
  const absl::StatusOr<std::string> status = files.ReadFile("/proc/self/status");
  if (!status.ok()) return {};
  return {StatusField(*status, "VmRSS"), StatusField(*status, "VmHWM"), false};
}

void ForgetPeakMemory() {
  // See proc(5), clear_refs.
  const FileDescriptor file(open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return;
  [[maybe_unused]] const ssize_t written = write(file.get(), "5", 1);
}

MemoryLimit ProcessMemoryLimit(FileSystem& files) {
  MemoryLimit lowest = {PhysicalMemoryBytes(), "this machine's memory"};
  const std::optional<ControlGroup> group = FindControlGroup(files);
  if (!group.has_value()) return lowest;
  std::string path = group->path;
  while (true) {
    const std::string folder = absl::StrCat(group->hierarchy.root, path);
    const std::optional<int64_t> limit =
        ReadNumber(files, absl::StrCat(folder, "/", group->hierarchy.limit));
    // Without a limit, version 1 says a number beyond any memory.
    if (limit.has_value() && *limit < lowest.bytes) {
      lowest = {*limit, absl::StrCat("control group ", folder)};
    }
    if (path.empty()) return lowest;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

void KeepHeapSmall() {
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMappedBlock));
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(kMappedBlock));
  mallopt(M_ARENA_MAX, kHeaps);
}

void ReleaseFreeMemory() { malloc_trim(0); }

}  // namespace weft
