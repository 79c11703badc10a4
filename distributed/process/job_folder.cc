#include "distributed/process/job_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr std::string_view kPrefix = "weft-";
constexpr size_t kRandomCharacters = 6;
constexpr char kLock[] = "lock";
constexpr char kToken[] = "token";

bool LooksLikeAJobs(std::string_view name) {
  return name.size() == kPrefix.size() + kRandomCharacters &&
         name.substr(0, kPrefix.size()) == kPrefix &&
         std::all_of(name.begin() + kPrefix.size(), name.end(), absl::ascii_isalnum);
}

// The names in the folder, without "." and ".."; empty where it cannot be read.
std::vector<std::string> NamesIn(const FileDescriptor& folder) {
  DIR* const open = fdopendir(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  if (open == nullptr) return {};
  const absl::Cleanup close = [open] { closedir(open); };
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(open)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// What a job puts there: its lock, its token, and a socket named by a number for each worker.
bool IsOfAJob(const std::string& name) {
  return name == kLock || name == kToken ||
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// Whether the process that made the folder has ended. One without a lock is perhaps being made.
bool HasEnded(const FileDescriptor& folder) {
  const FileDescriptor lock(
      openat(folder.get(), kLock, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

bool RemoveIfEnded(const FileDescriptor& place, const std::string& name) {
  const FileDescriptor folder(
      openat(place.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info = {};
  if (!folder.valid() || fstat(folder.get(), &info) != 0) return false;
  if (info.st_uid != geteuid() || (info.st_mode & 07777) != 0700) return false;
  const std::vector<std::string> names = NamesIn(folder);
  if (!std::all_of(names.begin(), names.end(), IsOfAJob)) return false;
  if (!HasEnded(folder)) return false;
  for (const std::string& file : names) unlinkat(folder.get(), file.c_str(), 0);
  return unlinkat(place.get(), name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace

absl::StatusOr<JobFolder> JobFolder::Create(const std::string& place) {
  std::string path = absl::StrCat(place, "/", absl::string_view(kPrefix.data(), kPrefix.size()),
                                  std::string(kRandomCharacters, 'X'));
  if (mkdtemp(path.data()) == nullptr) return SystemError(errno, "create the folder", path);
  JobFolder folder(path, FileDescriptor());
  const std::string file = absl::StrCat(path, "/", kLock);
  folder.lock_ = FileDescriptor(open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!folder.lock_.valid() || flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return SystemError(errno, "lock", file);
  }
  return folder;
}

JobFolder::JobFolder(std::string path, FileDescriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

JobFolder::JobFolder(JobFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

JobFolder::~JobFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> RemoveEndedJobFolders(const std::string& place) {
  const FileDescriptor folder(open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return {};
  std::vector<std::string> removed;
  for (const std::string& name : NamesIn(folder)) {
    if (!LooksLikeAJobs(name) || !RemoveIfEnded(folder, name)) continue;
    removed.push_back(absl::StrCat(place, "/", name));
  }
  return removed;
}

}  // namespace weft
