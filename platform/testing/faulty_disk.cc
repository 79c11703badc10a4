#include "platform/testing/faulty_disk.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft::testing {

class FaultyDisk::State {
 public:
  // Counts a change; the error when it must not be made.
  absl::Status Change(std::string_view action, const std::string& path) {
    MutexLock lock(mutex_);
    const int change = changes_++;
    if (death_ >= 0 && change >= death_) {
      return absl::CancelledError(
          absl::StrCat("the process was killed before it could ", std::string(action), " ", path));
    }
    if (change == failing_) return SystemError(failure_, action, path);
    if (error_number_ != 0) return SystemError(error_number_, action, path);
    return absl::OkStatus();
  }
  void DieAt(int change) {
    MutexLock lock(mutex_);
    death_ = change;
    changes_ = 0;
  }
  void FailWith(int error_number) {
    MutexLock lock(mutex_);
    error_number_ = error_number;
  }
  void FailOnce(int change, int error_number) {
    MutexLock lock(mutex_);
    failing_ = change;
    failure_ = error_number;
    changes_ = 0;
  }
  int changes() {
    MutexLock lock(mutex_);
    return changes_;
  }

 private:
  Mutex mutex_;
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
  int death_ ABSL_GUARDED_BY(mutex_) = -1;
  int error_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int failing_ ABSL_GUARDED_BY(mutex_) = -1;  // the change that fails once
  int failure_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FaultyDisk::Files final : public FileSystem {
 public:
  explicit Files(State& state) : state_(state) {}

  absl::StatusOr<std::string> ReadFileUpTo(const std::string& path,
                                           int64_t maximum_bytes) override {
    return RealFileSystem().ReadFileUpTo(path, maximum_bytes);
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override {
    return RealFileSystem().MapFile(path);
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) override {
    return RealFileSystem().MapFileBeneath(directory, relative_path);
  }
  absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) override {
    // What a death leaves behind has a name of its own, like the real one's.
    const std::string temporary = absl::StrCat(path, ".weft-torn.tmp");
    const absl::Status status = Replace(temporary, path, bytes);
    // The dead remove nothing.
    std::error_code ignored;
    if (!status.ok() && !absl::IsCancelled(status)) std::filesystem::remove(temporary, ignored);
    return status;
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override {
    WEFT_RETURN_IF_ERROR(state_.Change("open for writing", path));
    return RealFileSystem().OpenAppend(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) override {
    WEFT_RETURN_IF_ERROR(state_.Change("open for writing", path));
    return RealFileSystem().OpenEmpty(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    WEFT_RETURN_IF_ERROR(state_.Change("create the folder", path));
    return RealFileSystem().CreateDirectories(path);
  }
  bool Exists(const std::string& path) override { return RealFileSystem().Exists(path); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return RealFileSystem().ListDirectory(path);
  }
  absl::Status RemoveFile(const std::string& path) override {
    WEFT_RETURN_IF_ERROR(state_.Change("remove", path));
    return RealFileSystem().RemoveFile(path);
  }

 private:
  absl::Status Replace(const std::string& temporary, const std::string& path,
                       std::string_view bytes) {
    WEFT_RETURN_IF_ERROR(state_.Change("write", path));
    WEFT_RETURN_IF_ERROR(Put(temporary, bytes.substr(0, bytes.size() / 2)));
    WEFT_RETURN_IF_ERROR(state_.Change("write", path));
    WEFT_RETURN_IF_ERROR(Put(temporary, bytes));
    WEFT_RETURN_IF_ERROR(state_.Change("replace", path));
    std::error_code error;
    std::filesystem::rename(temporary, path, error);
    return error ? SystemError(error.value(), "replace", path) : absl::OkStatus();
  }
  static absl::Status Put(const std::string& path, std::string_view bytes) {
    WEFT_ASSIGN_OR_RETURN(const auto file, RealFileSystem().OpenEmpty(path));
    WEFT_RETURN_IF_ERROR(file->Append(bytes));
    return file->Close();
  }

  State& state_;
};

class FaultyDisk::Directories final : public Folders {
 public:
  explicit Directories(State& state) : state_(state) {}

  absl::Status Rename(const std::string& from, const std::string& to) override {
    WEFT_RETURN_IF_ERROR(state_.Change("rename", from));
    return RealFolders().Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    if (!RealFileSystem().Exists(path)) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const auto names, RealFileSystem().ListDirectory(path));
    for (const std::string& name : names) {
      const std::string inner = absl::StrCat(path, "/", name);
      WEFT_RETURN_IF_ERROR(state_.Change("remove", inner));
      WEFT_RETURN_IF_ERROR(RealFileSystem().RemoveFile(inner));
    }
    WEFT_RETURN_IF_ERROR(state_.Change("remove the folder", path));
    return RealFolders().Remove(path);
  }

 private:
  State& state_;
};

FaultyDisk::FaultyDisk()
    : state_(std::make_unique<State>()),
      files_(std::make_unique<Files>(*state_)),
      folders_(std::make_unique<Directories>(*state_)) {}
FaultyDisk::~FaultyDisk() = default;

FileSystem& FaultyDisk::files() { return *files_; }
Folders& FaultyDisk::folders() { return *folders_; }
void FaultyDisk::DieAt(int change) { state_->DieAt(change); }
void FaultyDisk::FailWith(int error_number) { state_->FailWith(error_number); }
void FaultyDisk::FailOnce(int change, int error_number) { state_->FailOnce(change, error_number); }
int FaultyDisk::changes() const { return state_->changes(); }

}  // namespace weft::testing
