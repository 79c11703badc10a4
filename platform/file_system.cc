#include "platform/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

// The system ends a path at a zero byte, so a longer name from a hostile file would name another
// file.
absl::Status CheckPath(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError("the path of a file or folder is empty; give one");
  }
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the path \"", absl::Utf8SafeCEscape(path),
                                                 "\" holds a zero byte; choose another path"));
}

absl::StatusOr<FileDescriptor> Open(const std::string& path, int flags, const char* action) {
  WEFT_RETURN_IF_ERROR(CheckPath(path));
  int descriptor = -1;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return SystemError(errno, action, path);
  return FileDescriptor(descriptor);
}

absl::Status NotARegularFile(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::Utf8SafeCEscape(path),
                   "\" is a folder, a device, a pipe or a socket; give "
                   "the path of a regular file"));
}

// The size of an open regular file; `path` is for the error text.
absl::StatusOr<int64_t> RegularFileSize(const FileDescriptor& file, const std::string& path) {
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return SystemError(errno, "examine", path);
  if (!S_ISREG(status.st_mode)) return NotARegularFile(path);
  return status.st_size;
}

absl::Status WriteAll(const FileDescriptor& file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// The folder part of a path, "." when it has none.
std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The path with symbolic links followed, when it names something; as it is otherwise.
std::string FollowLinks(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : std::string(real.get());
}

class MemoryMappedFile final : public MappedFile {
 public:
  MemoryMappedFile(std::span<const std::byte> bytes, const std::string& path)
      : MappedFile(bytes), mapping_(bytes), pages_(bytes, path) {}

 private:
  // Ends the mapping after the pages are no longer known.
  struct Mapping {
    explicit Mapping(std::span<const std::byte> mapped) : bytes(mapped) {}
    ~Mapping() {
      if (!bytes.empty()) munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
    }
    const std::span<const std::byte> bytes;
  };
  const Mapping mapping_;
  const MappedPages pages_;
};

absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const FileDescriptor& file,
                                                      const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(file, path));
  if (size == 0) return std::make_shared<MemoryMappedFile>(std::span<const std::byte>(), path);
  void* const memory =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, file.get(), /*offset=*/0);
  if (memory == MAP_FAILED) return SystemError(errno, "map", path);
  return std::make_shared<MemoryMappedFile>(
      std::span(static_cast<const std::byte*>(memory), static_cast<size_t>(size)), path);
}

// What writable files collect before they write.
constexpr size_t kBufferBytes = 64 << 10;

class BufferedFile final : public WritableFile {
 public:
  BufferedFile(FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  ~BufferedFile() override { Flush().IgnoreError(); }

  absl::Status Append(std::string_view bytes) override {
    if (!file_.valid()) return ClosedFileError(path_);
    if (bytes.size() >= kBufferBytes) {  // not copied first
      WEFT_RETURN_IF_ERROR(Flush());
      return WriteAll(file_, bytes, path_);
    }
    buffer_.append(bytes);
    return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
  }

  absl::Status AppendZeros(int64_t count) override {
    WEFT_RETURN_IF_ERROR(Flush());
    struct stat now = {};
    const int descriptor = file_.get();
    const bool extended = fstat(descriptor, &now) == 0 &&
                          ftruncate(descriptor, now.st_size + count) == 0 &&
                          lseek(descriptor, 0, SEEK_END) >= 0;
    return extended ? absl::OkStatus() : SystemError(errno, "extend", path_);
  }

  absl::Status Flush() override {
    if (!file_.valid()) return ClosedFileError(path_);
    const absl::Status status = WriteAll(file_, buffer_, path_);
    buffer_.clear();  // Also after an error: a half-written line must not come twice.
    return status;
  }

  absl::Status Close() override {
    WEFT_RETURN_IF_ERROR(Flush());
    if (file_.Close() != 0) return SystemError(errno, "close", path_);
    return absl::OkStatus();
  }

  // Not valid once the file is closed.
  const FileDescriptor& descriptor() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  FileDescriptor file_;
  const std::string path_;
  std::string buffer_;
};

class SystemFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::string> ReadFileUpTo(const std::string& path, int64_t maximum_bytes) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) override;
  absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenReplacement(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
};

absl::StatusOr<std::string> SystemFileSystem::ReadFileUpTo(const std::string& path,
                                                           int64_t maximum_bytes) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it.
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor file, Open(path, O_RDONLY | O_NONBLOCK, "open"));
  WEFT_ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(file, path));
  if (size > maximum_bytes) return TooManyBytesError(size, maximum_bytes, path);
  // Reads to the end, whatever the size said: files under /proc say 0, and a file can grow.
  std::string contents;
  contents.resize(static_cast<size_t>(size) + 1);
  size_t filled = 0;
  while (true) {
    const ssize_t got = read(file.get(), contents.data() + filled, contents.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "read", path);
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    const auto read_bytes = static_cast<int64_t>(filled);
    if (read_bytes > maximum_bytes) return TooManyBytesError(read_bytes, maximum_bytes, path);
    if (filled < contents.size()) continue;
    // Room for one byte beyond the largest file tells a larger one.
    contents.resize(std::min(filled + (64 << 10), static_cast<size_t>(maximum_bytes) + 1));
  }
  contents.resize(filled);
  return contents;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> SystemFileSystem::MapFile(
    const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor file, Open(path, O_RDONLY | O_NONBLOCK, "open"));
  return Map(file, path);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> SystemFileSystem::MapFileBeneath(
    const std::string& directory, const std::string& relative_path) {
  WEFT_RETURN_IF_ERROR(CheckPath(relative_path));
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor folder,
                        Open(directory, O_PATH | O_DIRECTORY, "open the folder"));
  open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something was renamed during the walk, so the kernel cannot vouch for it.
  constexpr int kAttempts = 100;
  long descriptor = -1;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    descriptor = syscall(SYS_openat2, folder.get(), relative_path.c_str(), &how, sizeof(how));
    if (descriptor >= 0 || (errno != EINTR && errno != EAGAIN)) break;
  }
  if (descriptor < 0 && (errno == EXDEV || errno == ELOOP)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the path \"", absl::Utf8SafeCEscape(relative_path), "\" leaves the folder \"",
        absl::Utf8SafeCEscape(directory),
        "\" or goes through a symbolic link; put the file itself into the folder and name it by "
        "its path from there"));
  }
  if (descriptor < 0 && errno == ENOSYS) {
    return absl::UnimplementedError(
        "the kernel has no openat2 call, which keeps paths inside a folder; Linux 5.6 or newer is "
        "needed");
  }
  const std::string path = absl::StrCat(directory, "/", relative_path);
  if (descriptor < 0) return SystemError(errno, "open", path);
  return Map(FileDescriptor(static_cast<int>(descriptor)), path);
}

// A new file beside `target` that no other call, thread or process uses.
absl::StatusOr<std::pair<FileDescriptor, std::string>> CreateTemporary(const std::string& target) {
  static std::atomic<uint64_t> counter = 0;
  while (true) {
    const std::string path =
        absl::StrCat(DirectoryOf(target), "/.weft-", getpid(), "-", counter.fetch_add(1), ".tmp");
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return std::make_pair(FileDescriptor(descriptor), path);
    if (errno != EEXIST && errno != EINTR) return SystemError(errno, "write", target);
  }
}

// A temporary file beside the one whose place it takes when it is closed.
class ReplacementFile final : public WritableFile {
 public:
  static absl::StatusOr<std::unique_ptr<ReplacementFile>> Create(const std::string& path) {
    WEFT_RETURN_IF_ERROR(CheckPath(path));
    const std::string target = FollowLinks(path);
    struct stat existing = {};
    const bool exists = stat(target.c_str(), &existing) == 0;
    if (exists && S_ISDIR(existing.st_mode)) return SystemError(EISDIR, "write", path);
    if (exists && !S_ISREG(existing.st_mode)) return NotARegularFile(path);
    WEFT_ASSIGN_OR_RETURN(auto temporary, CreateTemporary(target));
    std::unique_ptr<ReplacementFile> file(
        new ReplacementFile(std::move(temporary.first), path, target, temporary.second));
    const int descriptor = file->file_.descriptor().get();
    if (exists && fchmod(descriptor, existing.st_mode & 07777) != 0) {
      return SystemError(errno, "set the mode of", path);
    }
    return file;
  }
  ~ReplacementFile() override {
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }

  // All that the file is to hold; nothing may be appended.
  absl::Status WriteWhole(std::string_view bytes) {
    const int error = WriteWholeFile(file_.descriptor(), std::as_bytes(std::span(bytes)));
    return error == 0 ? absl::OkStatus() : SystemError(error, "write", file_.path());
  }
  absl::Status Append(std::string_view bytes) override { return file_.Append(bytes); }
  absl::Status AppendZeros(int64_t count) override { return file_.AppendZeros(count); }
  absl::Status Flush() override { return file_.Flush(); }

  absl::Status Close() override {
    const std::string& path = file_.path();
    WEFT_RETURN_IF_ERROR(Flush());
    if (fsync(file_.descriptor().get()) != 0) return SystemError(errno, "flush to the disk", path);
    WEFT_RETURN_IF_ERROR(file_.Close());
    if (rename(temporary_.c_str(), target_.c_str()) != 0) {
      return SystemError(errno, "replace", path);
    }
    temporary_.clear();
    WEFT_ASSIGN_OR_RETURN(const FileDescriptor folder,
                          Open(DirectoryOf(target_), O_RDONLY | O_DIRECTORY, "open the folder"));
    // Some file systems cannot flush a folder and say EINVAL; the file itself is safe by then.
    if (fsync(folder.get()) != 0 && errno != EINVAL) {
      return SystemError(errno, "flush to the disk the folder of", path);
    }
    return absl::OkStatus();
  }

 private:
  ReplacementFile(FileDescriptor file, std::string path, std::string target, std::string temporary)
      : file_(std::move(file), std::move(path)),
        target_(std::move(target)),
        temporary_(std::move(temporary)) {}

  BufferedFile file_;         // its path is the one that was given
  const std::string target_;  // without links
  std::string temporary_;     // "" once it has taken the place
};

absl::StatusOr<std::unique_ptr<WritableFile>> SystemFileSystem::OpenReplacement(
    const std::string& path) {
  return ReplacementFile::Create(path);
}

absl::Status SystemFileSystem::WriteFileAtomically(const std::string& path,
                                                   std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const auto file, ReplacementFile::Create(path));
  WEFT_RETURN_IF_ERROR(file->WriteWhole(bytes));
  return file->Close();
}

absl::StatusOr<std::unique_ptr<WritableFile>> SystemFileSystem::OpenAppend(
    const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor file,
                        Open(path, O_WRONLY | O_CREAT | O_APPEND, "open for writing"));
  return std::make_unique<BufferedFile>(std::move(file), path);
}

absl::StatusOr<std::unique_ptr<WritableFile>> SystemFileSystem::OpenEmpty(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor file,
                        Open(path, O_WRONLY | O_CREAT | O_TRUNC, "open for writing"));
  return std::make_unique<BufferedFile>(std::move(file), path);
}

absl::Status SystemFileSystem::CreateDirectories(const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckPath(path));
  size_t end = 0;
  while (end != std::string::npos) {
    end = path.find('/', end + 1);
    const std::string prefix = path.substr(0, end);
    if (mkdir(prefix.c_str(), 0777) == 0) continue;
    const int error = errno;
    struct stat status = {};
    if (stat(prefix.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    return SystemError(error, "create the folder", prefix);
  }
  return absl::OkStatus();
}

bool SystemFileSystem::Exists(const std::string& path) {
  return CheckPath(path).ok() && access(path.c_str(), F_OK) == 0;
}

absl::StatusOr<std::vector<std::string>> SystemFileSystem::ListDirectory(const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckPath(path));
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return SystemError(errno, "list the folder", path);
  const absl::Cleanup close_folder = [folder] { closedir(folder); };
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(folder);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return SystemError(errno, "list the folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status SystemFileSystem::RemoveFile(const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckPath(path));
  if (unlink(path.c_str()) != 0) return SystemError(errno, "remove", path);
  return absl::OkStatus();
}

// Keeps all that is appended until it is closed.
class CollectedFile final : public WritableFile {
 public:
  CollectedFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  absl::Status Append(std::string_view bytes) override {
    if (closed_) return ClosedFileError(path_);
    bytes_.append(bytes);
    return absl::OkStatus();
  }
  absl::Status Flush() override { return closed_ ? ClosedFileError(path_) : absl::OkStatus(); }
  absl::Status Close() override {
    WEFT_RETURN_IF_ERROR(Flush());
    closed_ = true;
    return files_.WriteFileAtomically(path_, bytes_);
  }

 private:
  FileSystem& files_;
  const std::string path_;
  std::string bytes_;
  bool closed_ = false;
};

}  // namespace

absl::Status WritableFile::AppendZeros(int64_t count) {
  const std::string zeros(static_cast<size_t>(std::min<int64_t>(count, kBufferBytes)), '\0');
  for (; count > 0; count -= static_cast<int64_t>(zeros.size())) {
    WEFT_RETURN_IF_ERROR(Append(std::string_view(zeros).substr(
        0, static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(zeros.size()))))));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FileSystem::OpenReplacement(const std::string& path) {
  return std::make_unique<CollectedFile>(*this, path);
}

FileSystem& RealFileSystem() {
  static SystemFileSystem* const files = new SystemFileSystem;  // Never destroyed.
  return *files;
}

}  // namespace weft
