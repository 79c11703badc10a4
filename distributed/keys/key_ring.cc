#include "distributed/keys/key_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

absl::StatusOr<FileDescriptor> MemoryFile(std::string_view bytes) {
  FileDescriptor file(memfd_create("weft-keys", MFD_CLOEXEC));
  if (!file.valid()) return SystemError(errno, "keep keys in memory for", "this process");
  while (!bytes.empty()) {
    const ssize_t count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(errno, "keep keys in memory for", "this process");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return file;
}

// What is opened by the path of `place` from now on has these bytes; what was opened stays.
absl::Status Replace(FileDescriptor& place, std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor file, MemoryFile(bytes));
  if (!place.valid()) {
    place = std::move(file);
  } else if (dup3(file.get(), place.get(), O_CLOEXEC) < 0) {
    return SystemError(errno, "replace the keys in memory of", "this process");
  }
  return absl::OkStatus();
}

// Which files lie there: different after any replacement or change of a file's bytes.
std::string VersionsOf(const std::string& folder) {
  std::string text;
  for (const char* const name : {kIdentityFile, kAuthorityFile}) {
    struct stat status = {};
    if (stat(absl::StrCat(folder, "/", name).c_str(), &status) != 0) {
      absl::StrAppend(&text, "none ");
      continue;
    }
    absl::StrAppend(&text, status.st_dev, ":", status.st_ino, ":", status.st_size, ":",
                    status.st_mode, ":", absl::ToUnixNanos(absl::TimeFromTimespec(status.st_mtim)),
                    ":", absl::ToUnixNanos(absl::TimeFromTimespec(status.st_ctim)), " ");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<KeyRing>> KeyRing::Open(const std::string& folder,
                                                       absl::Duration interval) {
  std::shared_ptr<KeyRing> ring(new KeyRing(folder));
  WEFT_RETURN_IF_ERROR(ring->Reload());
  ring->identity_path_ = absl::StrCat("/proc/self/fd/", ring->identity_file_.get());
  ring->authority_path_ = absl::StrCat("/proc/self/fd/", ring->authority_file_.get());
  ring->thread_ = std::thread([watched = ring.get(), interval] { watched->Watch(interval); });
  return ring;
}

KeyRing::~KeyRing() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const KeySet> KeyRing::Current() const {
  MutexLock lock(mutex_);
  return keys_;
}

int64_t KeyRing::changes() const {
  MutexLock lock(mutex_);
  return changes_;
}

absl::Status KeyRing::Reload() {
  MutexLock lock(mutex_);
  // Before the bytes are read: a change in between is seen the next time.
  std::string versions = VersionsOf(folder_);
  if (keys_ != nullptr && versions == seen_) return absl::OkStatus();
  absl::StatusOr<KeySet> keys = ReadKeyFolder(folder_, absl::Now());
  const bool is_first = keys_ == nullptr;
  seen_ = std::move(versions);
  if (!keys.ok()) {
    if (!is_first) {
      Log(LogLevel::kWarning, "the keys in ", folder_,
          " have changed and cannot be used, the earlier ones stay: ",
          std::string(keys.status().message()));
    }
    return keys.status();
  }
  WEFT_RETURN_IF_ERROR(Publish(*std::move(keys)));
  if (!is_first) {
    ++changes_;
    Log(LogLevel::kInfo, "new keys from ", folder_, ", valid until ",
        DateText(keys_->certificate.not_after));
  }
  return absl::OkStatus();
}

absl::Status KeyRing::Publish(KeySet keys) {
  WEFT_RETURN_IF_ERROR(Replace(identity_file_, keys.identity_pem));
  WEFT_RETURN_IF_ERROR(Replace(authority_file_, keys.authority_pem));
  keys_ = std::make_shared<const KeySet>(std::move(keys));
  return absl::OkStatus();
}

void KeyRing::Watch(absl::Duration interval) {
  while (true) {
    {
      MutexLock lock(mutex_);
      const absl::Time next = absl::Now() + interval;
      while (!ends_ && changed_.WaitUntil(mutex_, next)) {
      }
      if (ends_) return;
    }
    Reload().IgnoreError();  // the log has it
  }
}

}  // namespace weft
