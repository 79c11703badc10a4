#include "platform/restricted_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Without links and dots as far as the path exists; empty where that cannot be found out.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return "";
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(absolute, error);
  return error ? "" : canonical.lexically_normal().string();
}

std::string WithSlash(const std::string& path) {
  return absl::EndsWith(path, "/") ? path : absl::StrCat(path, "/");
}

}  // namespace

RestrictedFiles::RestrictedFiles(FileSystem& files, const std::vector<std::string>& folders)
    : files_(files) {
  for (const std::string& folder : folders) {
    const std::string canonical = Canonical(folder);
    if (!canonical.empty()) folders_.push_back(WithSlash(canonical));
  }
}

absl::Status RestrictedFiles::Check(const std::string& path) const {
  const std::string canonical = Canonical(path);
  const bool below = !canonical.empty() &&
                     std::any_of(folders_.begin(), folders_.end(), [&](const std::string& folder) {
                       return absl::StartsWith(WithSlash(canonical), folder);
                     });
  if (below) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("'", path,
                   "' is not below a folder that this worker may use; start it with --allow-path "
                   "FOLDER to add one"));
}

absl::StatusOr<std::string> RestrictedFiles::ReadFile(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.ReadFile(path);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> RestrictedFiles::MapFile(
    const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.MapFile(path);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> RestrictedFiles::MapFileBeneath(
    const std::string& directory, const std::string& relative_path) {
  WEFT_RETURN_IF_ERROR(Check(directory));
  return files_.MapFileBeneath(directory, relative_path);
}

absl::Status RestrictedFiles::WriteFileAtomically(const std::string& path, std::string_view bytes) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.WriteFileAtomically(path, bytes);
}

absl::StatusOr<std::unique_ptr<WritableFile>> RestrictedFiles::OpenAppend(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.OpenAppend(path);
}

absl::StatusOr<std::unique_ptr<WritableFile>> RestrictedFiles::OpenEmpty(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.OpenEmpty(path);
}

absl::Status RestrictedFiles::CreateDirectories(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.CreateDirectories(path);
}

bool RestrictedFiles::Exists(const std::string& path) {
  return Check(path).ok() && files_.Exists(path);
}

absl::StatusOr<std::vector<std::string>> RestrictedFiles::ListDirectory(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.ListDirectory(path);
}

absl::Status RestrictedFiles::RemoveFile(const std::string& path) {
  WEFT_RETURN_IF_ERROR(Check(path));
  return files_.RemoveFile(path);
}

}  // namespace weft
