#include "platform/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

absl::Status Flush(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return SystemError(errno, "open the folder", path);
  // Some file systems cannot flush a folder and say EINVAL.
  if (fsync(folder.get()) != 0 && errno != EINVAL) {
    return SystemError(errno, "flush to the disk the folder", path);
  }
  return absl::OkStatus();
}

std::string ParentOf(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// All but "." and "..".
absl::StatusOr<std::vector<std::string>> NamesIn(int folder, const std::string& path) {
  // Its own descriptor: closedir closes it.
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr) return SystemError(errno, "list the folder", path);
  const absl::Cleanup close_listing = [listing] { closedir(listing); };
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(listing);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return SystemError(errno, "list the folder", path);
  return names;
}

class SystemFolders final : public Folders {
 public:
  absl::Status Rename(const std::string& from, const std::string& to) override {
    WEFT_RETURN_IF_ERROR(Flush(from));
    // rename(2) replaces an empty folder without a word.
    struct stat status = {};
    if (lstat(to.c_str(), &status) == 0) return SystemError(EEXIST, "create the folder", to);
    if (rename(from.c_str(), to.c_str()) != 0) return SystemError(errno, "rename", from);
    return Flush(ParentOf(to));
  }

  absl::Status Remove(const std::string& path) override {
    const FileDescriptor folder(
        open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.valid()) {
      return errno == ENOENT ? absl::OkStatus() : SystemError(errno, "open the folder", path);
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder.get(), path));
    for (const std::string& name : names) {
      if (unlinkat(folder.get(), name.c_str(), 0) == 0 || errno == ENOENT) continue;
      const int error = errno;
      const std::string inner = absl::StrCat(path, "/", name);
      if (error == EISDIR || error == EPERM) {
        return absl::FailedPreconditionError(
            absl::StrCat("\"", absl::Utf8SafeCEscape(inner),
                         "\" is a folder, which does not belong there; remove it by hand"));
      }
      return SystemError(error, "remove", inner);
    }
    if (rmdir(path.c_str()) != 0 && errno != ENOENT) {
      return SystemError(errno, "remove the folder", path);
    }
    return absl::OkStatus();
  }
};

}  // namespace

Folders& RealFolders() {
  static SystemFolders* const folders = new SystemFolders;  // Never destroyed.
  return *folders;
}

}  // namespace weft
