#include "tests/testing/memory_groups.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

bool WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  return file.good();
}

// The folder of this process's memory control group.
std::string OwnGroup(bool& is_version2) {
  is_version2 = false;
  std::string found;
  const auto text = RealFileSystem().ReadFile("/proc/self/cgroup");
  if (!text.ok()) return found;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(*text, '\n'))) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string path = fields[2] == "/" ? "" : fields[2];
    if (fields[1] == "memory") {
      is_version2 = false;
      return absl::StrCat("/sys/fs/cgroup/memory", path);
    }
    if (fields[0] == "0") {
      is_version2 = true;
      found = absl::StrCat("/sys/fs/cgroup", path);
    }
  }
  return found;
}

}  // namespace

std::unique_ptr<MemoryGroups> MemoryGroups::Create(int workers, int64_t limit_bytes,
                                                   std::string& why) {
  bool is_version2 = false;
  const std::string parent = OwnGroup(is_version2);
  std::unique_ptr<MemoryGroups> groups(new MemoryGroups());
  groups->folder_ = absl::StrCat(parent, "/weft-", getpid());
  groups->peak_file_ = is_version2 ? "memory.peak" : "memory.max_usage_in_bytes";
  std::error_code error;
  std::filesystem::create_directory(groups->folder_, error);
  if (parent.empty() || error) {
    why = absl::StrCat("no control group can be made in '", parent, "': ", error.message());
    return nullptr;
  }
  if (is_version2) WriteText(absl::StrCat(groups->folder_, "/cgroup.subtree_control"), "+memory");
  for (; groups->workers_ < workers; ++groups->workers_) {
    const std::string group = absl::StrCat(groups->folder_, "/", groups->workers_);
    std::filesystem::create_directory(group, error);
    const std::string limit =
        absl::StrCat(group, is_version2 ? "/memory.max" : "/memory.limit_in_bytes");
    if (error || !std::filesystem::exists(absl::StrCat(group, "/", groups->peak_file_)) ||
        (limit_bytes > 0 && !WriteText(limit, absl::StrCat(limit_bytes)))) {
      why = absl::StrCat("control group ", group, " has no memory controller that we may set");
      return nullptr;
    }
  }
  return groups;
}

MemoryGroups::~MemoryGroups() {
  std::error_code ignored;
  for (int worker = 0; worker <= workers_; ++worker) {  // with one that could not be used
    std::filesystem::remove(absl::StrCat(folder_, "/", worker), ignored);
  }
  std::filesystem::remove(folder_, ignored);
}

std::vector<std::string> MemoryGroups::Command(const std::string& program) const {
  // LocalCluster adds "--listen unix:FOLDER/RANK ...".
  const std::string script =
      absl::StrCat("echo $$ > '", folder_, "'/\"${4##*/}\"/cgroup.procs && exec \"$@\"");
  return {"/bin/sh", "-c", script, "sh", program, "worker"};
}

int64_t MemoryGroups::PeakBytes(int worker) const {
  const auto text = RealFileSystem().ReadFile(absl::StrCat(folder_, "/", worker, "/", peak_file_));
  int64_t bytes = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &bytes)) return 0;
  return bytes;
}

}  // namespace weft::testing
