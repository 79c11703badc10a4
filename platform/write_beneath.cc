#include "platform/write_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

// EAGAIN: something was renamed during the walk, so the kernel cannot vouch for it.
constexpr int kAttempts = 100;

absl::Status Leaves(const std::string& directory, const std::string& relative_path) {
  return absl::InvalidArgumentError(
      absl::StrCat("the path \"", absl::Utf8SafeCEscape(relative_path), "\" leaves the folder \"",
                   absl::Utf8SafeCEscape(directory), "\" or goes through a symbolic link"));
}

// The folder of the file, opened in one step of the kernel.
absl::StatusOr<FileDescriptor> OpenFolderBeneath(const std::string& directory,
                                                 const std::string& relative_path,
                                                 const std::string& inner) {
  const FileDescriptor folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return SystemError(errno, "open the folder", directory);
  open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long descriptor = -1;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    descriptor = syscall(SYS_openat2, folder.get(), inner.c_str(), &how, sizeof(how));
    if (descriptor >= 0 || (errno != EINTR && errno != EAGAIN)) break;
  }
  if (descriptor >= 0) return FileDescriptor(static_cast<int>(descriptor));
  if (errno == EXDEV || errno == ELOOP) return Leaves(directory, relative_path);
  return SystemError(errno, "open the folder of", absl::StrCat(directory, "/", relative_path));
}

absl::Status WriteAll(const FileDescriptor& file, std::string_view bytes, const std::string& path) {
  const int error = WriteWholeFile(file, std::as_bytes(std::span(bytes)));
  if (error != 0) return SystemError(error, "write", path);
  return fsync(file.get()) == 0 ? absl::OkStatus() : SystemError(errno, "flush to the disk", path);
}

// The mode of the file that is there; none where there is none. InvalidArgument where it is no
// file.
absl::StatusOr<std::optional<mode_t>> ModeOf(const FileDescriptor& folder, const std::string& name,
                                             const std::string& path) {
  struct stat existing = {};
  if (fstatat(folder.get(), name.c_str(), &existing, AT_SYMLINK_NOFOLLOW) != 0) {
    return std::nullopt;
  }
  if (S_ISREG(existing.st_mode)) return std::optional<mode_t>(existing.st_mode & 07777);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::Utf8SafeCEscape(path),
                   "\" is a folder, a link, a device, a pipe or a socket; give the path of a "
                   "regular file"));
}

// A new file in the folder, and its name. One of that name may be there: a process that was killed
// leaves it, and the next one in its container has the same id.
absl::StatusOr<std::pair<FileDescriptor, std::string>> CreateTemporary(const FileDescriptor& folder,
                                                                       const std::string& path) {
  static std::atomic<uint64_t> counter = 0;
  while (true) {
    std::string name = absl::StrCat(".weft-", getpid(), "b", counter.fetch_add(1), ".tmp");
    const int descriptor = openat(folder.get(), name.c_str(),
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor >= 0) return std::make_pair(FileDescriptor(descriptor), std::move(name));
    if (errno != EEXIST && errno != EINTR) return SystemError(errno, "write", path);
  }
}

}  // namespace

absl::Status WriteFileBeneath(const std::string& directory, const std::string& relative_path,
                              std::string_view bytes) {
  const std::string path = absl::StrCat(directory, "/", relative_path);
  const size_t slash = relative_path.rfind('/');
  const bool is_inside = slash != std::string::npos;
  const std::string name = is_inside ? relative_path.substr(slash + 1) : relative_path;
  const bool is_name = !name.empty() && name != "." && name != "..";
  if (!is_name || slash == 0 || path.find('\0') != std::string::npos) {
    return Leaves(directory, relative_path);
  }
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor folder,
                        OpenFolderBeneath(directory, relative_path,
                                          is_inside ? relative_path.substr(0, slash) : "."));
  WEFT_ASSIGN_OR_RETURN(const std::optional<mode_t> mode, ModeOf(folder, name, path));
  WEFT_ASSIGN_OR_RETURN(auto temporary, CreateTemporary(folder, path));
  auto& [file, temporary_name] = temporary;
  absl::Cleanup remove = [&folder, &temporary_name = temporary_name] {
    unlinkat(folder.get(), temporary_name.c_str(), 0);
  };
  // Before anything is in it: who may not read the file that is there may not read this one.
  if (mode.has_value() && fchmod(file.get(), *mode) != 0) {
    return SystemError(errno, "set the mode of", path);
  }
  WEFT_RETURN_IF_ERROR(WriteAll(file, bytes, path));
  if (file.Close() != 0) return SystemError(errno, "close", path);
  if (renameat(folder.get(), temporary_name.c_str(), folder.get(), name.c_str()) != 0) {
    return SystemError(errno, "replace", path);
  }
  std::move(remove).Cancel();
  // Some file systems cannot flush a folder and say EINVAL; the file itself is safe by then.
  if (fsync(folder.get()) == 0 || errno == EINVAL) return absl::OkStatus();
  return SystemError(errno, "flush to the disk the folder of", path);
}

}  // namespace weft
