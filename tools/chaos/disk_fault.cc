#include "tools/chaos/disk_fault.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

// More files than checkpoints have.
constexpr char kManyFiles[] = "1000000";

// Makes the folder a file system of its own, which only this thread and its processes see.
absl::Status MountInMemory(const std::string& folder) {
  if (geteuid() != 0) return absl::PermissionDeniedError("that needs root");
  if (unshare(CLONE_NEWNS) != 0)
    return SystemError(errno, "make a namespace of mounts for", folder);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return SystemError(errno, "make private", "/");
  }
  const std::string options = absl::StrCat("mode=0700,nr_inodes=", kManyFiles);
  if (mount("tmpfs", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return SystemError(errno, "mount a file system in memory at", folder);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskFault>> DiskFault::Create(const std::string& folder) {
  WEFT_RETURN_IF_ERROR(RealFileSystem().CreateDirectories(folder));
  const absl::Status mounted = MountInMemory(folder);
  std::unique_ptr<DiskFault> disk(new DiskFault(folder, std::string(mounted.message())));
  if (!mounted.ok()) {
    WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(disk->stand_in(), ""));
  }
  return disk;
}

DiskFault::~DiskFault() {
  if (is_on_) End().IgnoreError();
  if (why_not_full_.empty()) umount2(folder_.c_str(), MNT_DETACH);
}

absl::Status DiskFault::LimitFiles(const std::string& count) const {
  const std::string options = absl::StrCat("nr_inodes=", count);
  if (mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV,
            options.c_str()) != 0) {
    return SystemError(errno, "limit the files of", folder_);
  }
  return absl::OkStatus();
}

absl::Status DiskFault::Swap() const {
  if (renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, stand_in().c_str(), RENAME_EXCHANGE) != 0) {
    return SystemError(errno, "put a file in the place of", folder_);
  }
  return absl::OkStatus();
}

absl::Status DiskFault::Begin() {
  if (is_on_) return absl::OkStatus();
  if (!why_not_full_.empty()) {
    WEFT_RETURN_IF_ERROR(Swap());
  } else {
    // As many as it has already. A save under way may make one more meanwhile: then again.
    absl::Status limited;
    for (int tries = 0; tries < 100; ++tries) {
      struct statvfs room = {};
      if (statvfs(folder_.c_str(), &room) != 0) return SystemError(errno, "look at", folder_);
      limited = LimitFiles(absl::StrCat(room.f_files - room.f_ffree));
      if (limited.ok()) break;
    }
    WEFT_RETURN_IF_ERROR(limited);
  }
  is_on_ = true;
  return absl::OkStatus();
}

absl::Status DiskFault::End() {
  if (!is_on_) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(why_not_full_.empty() ? LimitFiles(kManyFiles) : Swap());
  is_on_ = false;
  return absl::OkStatus();
}

absl::Status DiskFault::Clear() {
  WEFT_RETURN_IF_ERROR(End());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    std::filesystem::remove_all(entry.path(), error);
    if (error) return SystemError(error.value(), "remove", entry.path().string());
  }
  return error ? SystemError(error.value(), "list", folder_) : absl::OkStatus();
}

}  // namespace weft
