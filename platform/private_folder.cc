#include "platform/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr char kUnfinishedPrefix[] = ".weft-";
constexpr char kUnfinishedSuffix[] = ".tmp";

// Whether nobody but this user can write what has this status; `what` is "folder" or "file".
absl::Status CheckOwned(const struct stat& status, const char* what, const std::string& path) {
  const auto refused = [&](const char* why, const char* action) {
    return absl::PermissionDeniedError(absl::StrCat("the ", what, " \"",
                                                    absl::Utf8SafeCEscape(path), "\" ", why, "; ",
                                                    action, ", or choose another folder"));
  };
  if (status.st_uid != geteuid()) return refused("belongs to another user", "remove it");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refused("can be written by other users", "take that right from them (chmod go-w)");
  }
  return absl::OkStatus();
}

absl::Status CreateWithParents(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // Where it is there, the system may say that it cannot be written before that it exists.
      const int error = errno;
      struct stat status = {};
      if (stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        return SystemError(error, "create the folder", part);
      }
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

class SystemPrivateFolder final : public PrivateFolder {
 public:
  SystemPrivateFolder(FileDescriptor folder, std::string path)
      : folder_(std::move(folder)), path_(std::move(path)) {}

  absl::StatusOr<std::string> Read(const std::string& name, int64_t maximum_bytes) override {
    WEFT_RETURN_IF_ERROR(CheckName(name));
    const std::string path = PathOf(name);
    // O_NONBLOCK: opening a pipe must not wait for its writer.
    const FileDescriptor file(
        openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file.valid() && errno == ELOOP) return NotPrivate(path);
    if (!file.valid()) return SystemError(errno, "open", path);
    struct stat status = {};
    if (fstat(file.get(), &status) != 0) return SystemError(errno, "examine", path);
    if (!S_ISREG(status.st_mode)) return NotPrivate(path);
    WEFT_RETURN_IF_ERROR(CheckOwned(status, "file", path));
    if (status.st_size > maximum_bytes) {
      return TooManyBytesError(status.st_size, maximum_bytes, path);
    }
    std::string bytes(static_cast<size_t>(status.st_size), '\0');
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return SystemError(errno, "read", path);
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

  absl::Status Write(const std::string& name, std::string_view bytes) override {
    WEFT_RETURN_IF_ERROR(CheckName(name));
    const std::string path = PathOf(name);
    static std::atomic<uint64_t> counter = 0;
    std::string temporary;
    FileDescriptor file;
    while (!file.valid()) {
      temporary =
          absl::StrCat(kUnfinishedPrefix, getpid(), "-", counter.fetch_add(1), kUnfinishedSuffix);
      file = FileDescriptor(openat(folder_.get(), temporary.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!file.valid() && errno != EEXIST && errno != EINTR) {
        return SystemError(errno, "write", path);
      }
    }
    absl::Cleanup remove = [&] { unlinkat(folder_.get(), temporary.c_str(), 0); };
    while (!bytes.empty()) {
      const ssize_t count = write(file.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return SystemError(errno, "write", path);
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    if (file.Close() != 0) return SystemError(errno, "write", path);
    if (renameat(folder_.get(), temporary.c_str(), folder_.get(), name.c_str()) != 0) {
      return SystemError(errno, "replace", path);
    }
    std::move(remove).Cancel();
    return absl::OkStatus();
  }

  absl::Status MarkUsed(const std::string& name) override {
    WEFT_RETURN_IF_ERROR(CheckName(name));
    if (utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0) {
      return SystemError(errno, "set the time of", PathOf(name));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Entry>> List() override {
    // Its own descriptor: closedir closes it, and each listing begins at the first name.
    const int copy = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
    if (listing == nullptr) {
      const int error = errno;
      if (copy >= 0) close(copy);
      return SystemError(error, "list the folder", path_);
    }
    const absl::Cleanup close_listing = [listing] { closedir(listing); };
    std::vector<Entry> entries;
    while (true) {
      errno = 0;
      const dirent* const found = readdir(listing);
      if (found == nullptr) break;
      struct stat status = {};
      // One that another process removes meanwhile is none.
      if (fstatat(folder_.get(), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!S_ISREG(status.st_mode)) continue;
      entries.push_back({found->d_name, status.st_size, absl::TimeFromTimespec(status.st_mtim)});
    }
    if (errno != 0) return SystemError(errno, "list the folder", path_);
    return entries;
  }

  absl::Status Remove(const std::string& name) override {
    WEFT_RETURN_IF_ERROR(CheckName(name));
    if (unlinkat(folder_.get(), name.c_str(), 0) == 0) return absl::OkStatus();
    return SystemError(errno, "remove", PathOf(name));
  }

 private:
  static absl::Status CheckName(const std::string& name) {
    const bool fits = !name.empty() && name != "." && name != ".." &&
                      name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::Utf8SafeCEscape(name),
                                                   "\" is not the name of a file in a folder"));
  }

  static absl::Status NotPrivate(const std::string& path) {
    return absl::PermissionDeniedError(absl::StrCat("\"", absl::Utf8SafeCEscape(path),
                                                    "\" is a link or no regular file; remove it"));
  }

  std::string PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }

  const FileDescriptor folder_;
  const std::string path_;
};

}  // namespace

bool PrivateFolder::IsUnfinished(std::string_view name) {
  return name.starts_with(kUnfinishedPrefix) && name.ends_with(kUnfinishedSuffix);
}

absl::StatusOr<std::unique_ptr<PrivateFolder>> OpenPrivateFolder(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::Utf8SafeCEscape(path),
                                                   "\" is not the path of a folder; give one"));
  }
  WEFT_RETURN_IF_ERROR(CreateWithParents(path));
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return SystemError(errno, "open the folder", path);
  struct stat status = {};
  if (fstat(folder.get(), &status) != 0) return SystemError(errno, "examine", path);
  WEFT_RETURN_IF_ERROR(CheckOwned(status, "folder", path));
  return std::make_unique<SystemPrivateFolder>(std::move(folder), path);
}

}  // namespace weft
