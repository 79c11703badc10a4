#ifndef WEFT_PLATFORM_TESTING_FAKE_FILE_SYSTEM_H_
#define WEFT_PLATFORM_TESTING_FAKE_FILE_SYSTEM_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "platform/mutex.h"

namespace weft::testing {

// Files in memory, with errors on demand. Behaves as the real one does, but knows no symbolic
// links, no modes and no devices. Starts with the folders "/" and "." only. Thread-safe.
//
//   FakeFileSystem files;
//   files.InjectError(FakeFileSystem::Operation::kSync, EIO);
//   files.WriteFileAtomically("/out.onnx", bytes);   // DataLoss; "/out.onnx" is as it was
class FakeFileSystem final : public FileSystem {
 public:
  // The steps of the real calls that can fail.
  enum class Operation { kOpen, kRead, kWrite, kSync, kRename, kCreateDirectory, kList, kRemove };

  absl::StatusOr<std::string> ReadFileUpTo(const std::string& path, int64_t maximum_bytes) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) override;
  absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;

  // After `after` more operations of this kind succeed, the next one fails with `error_number`
  // (ENOSPC, EIO, ...), once.
  void InjectError(Operation operation, int error_number, int after = 0);

 private:
  class AppendingFile;

  struct InjectedError {
    int error_number;
    int after;
  };

  // Counts one operation; the injected error when it is its turn.
  absl::Status Step(Operation operation, std::string_view action, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Read(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a file may be created or replaced at `path`.
  absl::Status CheckTarget(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, bool empty);
  absl::Status Append(const std::string& path, std::string_view bytes);

  Mutex mutex_;
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> directories_ ABSL_GUARDED_BY(mutex_) = {"/", "."};
  std::map<Operation, std::vector<InjectedError>> errors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_PLATFORM_TESTING_FAKE_FILE_SYSTEM_H_
