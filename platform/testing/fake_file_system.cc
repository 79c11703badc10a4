#include "platform/testing/fake_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft::testing {
namespace {

constexpr size_t kPageBytes = 4096;

// "a//b/./c/" and "a/b/c" are the same file.
std::string Normalize(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

std::string ParentOf(const std::string& normal_path) {
  const std::string parent = std::filesystem::path(normal_path).parent_path().string();
  return parent.empty() ? "." : parent;
}

struct PageDeleter {
  void operator()(std::byte* memory) const {
    ::operator delete[](memory, std::align_val_t(kPageBytes));
  }
};
using PageMemory = std::unique_ptr<std::byte[], PageDeleter>;

class CopiedFile final : public MappedFile {
 public:
  CopiedFile(PageMemory memory, size_t size)
      : MappedFile({memory.get(), size}), memory_(std::move(memory)) {}

  static std::shared_ptr<const MappedFile> Copy(const std::string& contents) {
    if (contents.empty()) return std::make_shared<CopiedFile>(nullptr, 0);
    PageMemory memory(
        static_cast<std::byte*>(::operator new[](contents.size(), std::align_val_t(kPageBytes))));
    std::memcpy(memory.get(), contents.data(), contents.size());
    return std::make_shared<CopiedFile>(std::move(memory), contents.size());
  }

 private:
  const PageMemory memory_;
};

}  // namespace

// Keeps what is appended until Flush, as the real one may.
class FakeFileSystem::AppendingFile final : public WritableFile {
 public:
  AppendingFile(FakeFileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~AppendingFile() override { Flush().IgnoreError(); }

  absl::Status Append(std::string_view bytes) override {
    if (closed_) return ClosedFileError(path_);
    buffer_.append(bytes);
    return absl::OkStatus();
  }
  absl::Status Flush() override {
    if (closed_) return ClosedFileError(path_);
    return files_.Append(path_, std::exchange(buffer_, ""));
  }
  absl::Status Close() override {
    WEFT_RETURN_IF_ERROR(Flush());
    closed_ = true;
    return absl::OkStatus();
  }

 private:
  FakeFileSystem& files_;
  const std::string path_;
  std::string buffer_;
  bool closed_ = false;
};

void FakeFileSystem::InjectError(Operation operation, int error_number, int after) {
  MutexLock lock(mutex_);
  errors_[operation].push_back({.error_number = error_number, .after = after});
}

absl::Status FakeFileSystem::Step(Operation operation, std::string_view action,
                                  const std::string& path) {
  std::vector<InjectedError>& errors = errors_[operation];
  if (errors.empty()) return absl::OkStatus();
  if (errors.front().after-- > 0) return absl::OkStatus();
  const int error_number = errors.front().error_number;
  errors.erase(errors.begin());
  return SystemError(error_number, action, path);
}

absl::Status FakeFileSystem::CheckTarget(const std::string& path) const {
  const std::string normal = Normalize(path);
  if (directories_.count(normal) > 0) return SystemError(EISDIR, "write", path);
  if (directories_.count(ParentOf(normal)) == 0) return SystemError(ENOENT, "write", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> FakeFileSystem::Read(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Step(Operation::kOpen, "open", path));
  const std::string normal = Normalize(path);
  if (directories_.count(normal) > 0) return SystemError(EISDIR, "open", path);
  const auto file = files_.find(normal);
  if (file == files_.end()) return SystemError(ENOENT, "open", path);
  WEFT_RETURN_IF_ERROR(Step(Operation::kRead, "read", path));
  return file->second;
}

absl::StatusOr<std::string> FakeFileSystem::ReadFileUpTo(const std::string& path,
                                                         int64_t maximum_bytes) {
  MutexLock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(std::string contents, Read(path));
  const auto size = static_cast<int64_t>(contents.size());
  if (size > maximum_bytes) return TooManyBytesError(size, maximum_bytes, path);
  return contents;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> FakeFileSystem::MapFile(const std::string& path) {
  MutexLock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const std::string contents, Read(path));
  return CopiedFile::Copy(contents);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> FakeFileSystem::MapFileBeneath(
    const std::string& directory, const std::string& relative_path) {
  const std::string normal = Normalize(relative_path);
  if (normal.empty() || normal.front() == '/' || normal == ".." || normal.rfind("../", 0) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path \"", relative_path, "\" leaves the folder \"", directory, "\""));
  }
  return MapFile(absl::StrCat(directory, "/", relative_path));
}

absl::Status FakeFileSystem::WriteFileAtomically(const std::string& path, std::string_view bytes) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(CheckTarget(path));
  WEFT_RETURN_IF_ERROR(Step(Operation::kOpen, "write", path));
  WEFT_RETURN_IF_ERROR(Step(Operation::kWrite, "write", path));
  WEFT_RETURN_IF_ERROR(Step(Operation::kSync, "flush to the disk", path));
  WEFT_RETURN_IF_ERROR(Step(Operation::kRename, "replace", path));
  files_[Normalize(path)] = std::string(bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FakeFileSystem::OpenForWriting(
    const std::string& path, bool empty) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(CheckTarget(path));
  WEFT_RETURN_IF_ERROR(Step(Operation::kOpen, "open for writing", path));
  std::string& contents = files_[Normalize(path)];
  if (empty) contents.clear();
  return std::make_unique<AppendingFile>(*this, path);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FakeFileSystem::OpenAppend(const std::string& path) {
  return OpenForWriting(path, /*empty=*/false);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FakeFileSystem::OpenEmpty(const std::string& path) {
  return OpenForWriting(path, /*empty=*/true);
}

absl::Status FakeFileSystem::Append(const std::string& path, std::string_view bytes) {
  MutexLock lock(mutex_);
  if (bytes.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(Step(Operation::kWrite, "write", path));
  files_[Normalize(path)].append(bytes);
  return absl::OkStatus();
}

absl::Status FakeFileSystem::CreateDirectories(const std::string& path) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(Step(Operation::kCreateDirectory, "create the folder", path));
  for (std::string folder = Normalize(path); directories_.count(folder) == 0;
       folder = ParentOf(folder)) {
    if (files_.count(folder) > 0) return SystemError(EEXIST, "create the folder", path);
    directories_.insert(folder);
  }
  return absl::OkStatus();
}

bool FakeFileSystem::Exists(const std::string& path) {
  MutexLock lock(mutex_);
  const std::string normal = Normalize(path);
  return files_.count(normal) > 0 || directories_.count(normal) > 0;
}

absl::StatusOr<std::vector<std::string>> FakeFileSystem::ListDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(Step(Operation::kList, "list the folder", path));
  const std::string normal = Normalize(path);
  if (directories_.count(normal) == 0) return SystemError(ENOENT, "list the folder", path);
  std::vector<std::string> names;
  const auto add = [&names, &normal](const std::string& entry) {
    if (entry == normal || ParentOf(entry) != normal) return;
    names.push_back(std::filesystem::path(entry).filename().string());
  };
  for (const auto& [file, contents] : files_) add(file);
  for (const std::string& folder : directories_) add(folder);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status FakeFileSystem::RemoveFile(const std::string& path) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(Step(Operation::kRemove, "remove", path));
  if (files_.erase(Normalize(path)) == 0) return SystemError(ENOENT, "remove", path);
  return absl::OkStatus();
}

}  // namespace weft::testing
