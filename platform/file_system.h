// FileSystem: reads, maps, writes and appends files.
#ifndef WEFT_PLATFORM_FILE_SYSTEM_H_
#define WEFT_PLATFORM_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// A file's bytes as memory, read-only; a page of the machine aligned (64 bytes and more). Stays
// valid after the file is replaced or removed. A file that another process truncates in place while
// it is mapped reads as zeros behind its new end, and CheckMappedFiles names it
// (platform/mapped_pages.h). Thread-safe.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Null only when the file is empty.
  const std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 protected:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

 private:
  const std::span<const std::byte> bytes_;
};

// A file being written from front to back. The destructor closes it and drops errors: call Close
// where they matter. Not thread-safe.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Adds bytes; they may stay in this process until Flush or Close.
  virtual absl::Status Append(std::string_view bytes) = 0;

  // Hands all bytes to the operating system: other processes see them.
  virtual absl::Status Flush() = 0;

  // Flushes and closes. Call it once; nothing may follow.
  virtual absl::Status Close() = 0;

  // Adds so many zero bytes. A real file has a hole there, which takes no room on the disk where
  // the file system knows holes.
  virtual absl::Status AppendZeros(int64_t count);
};

// Files and folders. Error texts name the path, what the system said and what to do. Codes:
// NotFound, AlreadyExists, PermissionDenied, ResourceExhausted (disk full, too many open files,
// file too large for the call), InvalidArgument (not a file, a path that escapes), DataLoss (the
// disk failed), Unknown. Thread-safe; calls on the same path race as the system's own do.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The largest file that ReadFile takes; map larger ones. A protobuf message ends there, too.
  static constexpr int64_t kMaximumReadBytes = int64_t{1} << 31;

  // A regular file, whole.
  absl::StatusOr<std::string> ReadFile(const std::string& path) {
    return ReadFileUpTo(path, kMaximumReadBytes);
  }

  // The same for a file that should be small and that nobody needs to trust: where it holds more
  // than `maximum_bytes`, it is not read, and the error is ResourceExhausted with both numbers.
  virtual absl::StatusOr<std::string> ReadFileUpTo(const std::string& path,
                                                   int64_t maximum_bytes) = 0;

  // A regular file as memory.
  virtual absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) = 0;

  // As MapFile, for a path that comes from a file we do not trust: it is taken relative to
  // `directory` and cannot leave it, neither by "..", nor as an absolute path, nor through a
  // symbolic link (all are InvalidArgument).
  virtual absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) = 0;

  // Creates or replaces a file: afterwards it holds all of `bytes`, also after a crash; on an error
  // it holds what it held before, and nothing else is left behind. Writes a temporary file in the
  // same folder, flushes it to the disk, renames it, flushes the folder. A symbolic link is
  // followed; the mode of an existing file is kept.
  virtual absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) = 0;

  // The same for bytes that come one after the other: what is appended takes the place of the file
  // when it is closed, and is gone where it is not. Here it is kept in memory until then; the real
  // file system writes it as it comes.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenReplacement(const std::string& path);

  // Opens a file to add at its end; creates it when it is missing.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) = 0;

  // Opens an empty file to write: creates it, or empties the one that is there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) = 0;

  // Creates the folder and the missing ones above it; fine when it is there.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;

  // Whether a file or folder of this name can be seen.
  virtual bool Exists(const std::string& path) = 0;

  // Names (not paths) in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;

  // Removes a file (not a folder); NotFound when there is none.
  virtual absl::Status RemoveFile(const std::string& path) = 0;
};

// The machine's files.
FileSystem& RealFileSystem();

}  // namespace weft

#endif  // WEFT_PLATFORM_FILE_SYSTEM_H_
