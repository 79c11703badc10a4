#include "platform/restricted_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "platform/write_beneath.h"

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

absl::Status NeverAllowed(const char* action, const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("a worker does not ", action, " for others ('", path, "')"));
}

}  // namespace

RestrictedFiles::RestrictedFiles(FileSystem& files, const AllowedFolders& allowed)
    : files_(files), writable_(allowed.writable), flag_(allowed.flag) {
  for (const std::string& folder : allowed.folders) {
    const std::string canonical = Canonical(folder);
    if (!canonical.empty()) folders_.push_back(WithSlash(canonical));
  }
}

absl::Status RestrictedFiles::Outside(const std::string& path) const {
  const char* const use = writable_ ? "write to" : "read from";
  const auto name = [](std::string* out, const std::string& folder) {
    // "/data/" as it was given, "/" as it is.
    out->append(folder, 0, std::max<size_t>(folder.size() - 1, 1));
  };
  const std::string seen =
      folders_.empty()
          ? absl::StrCat("'", path, "': jobs may ", use, " no folder of this worker")
          : absl::StrCat("'", path, "' is not below a folder that jobs may ", use,
                         " on this worker (", absl::StrJoin(folders_, ", ", name), ")");
  return absl::PermissionDeniedError(
      absl::StrCat(seen, "; start it with ", flag_, " FOLDER to add one"));
}

absl::StatusOr<RestrictedFiles::Place> RestrictedFiles::Find(const std::string& path) const {
  const std::string canonical = Canonical(path);
  for (const std::string& folder : folders_) {
    if (canonical.empty() || !absl::StartsWith(WithSlash(canonical), folder)) continue;
    const bool is_folder = canonical.size() <= folder.size();
    return Place{folder, is_folder ? "." : canonical.substr(folder.size())};
  }
  return Outside(path);
}

absl::StatusOr<std::string> RestrictedFiles::ReadFileUpTo(const std::string& path,
                                                          int64_t maximum_bytes) {
  WEFT_ASSIGN_OR_RETURN(const auto file, MapFile(path));
  const auto size = static_cast<int64_t>(file->size());
  if (size > maximum_bytes) return TooManyBytesError(size, maximum_bytes, path);
  return std::string(reinterpret_cast<const char*>(file->data()), file->size());
}

absl::StatusOr<std::shared_ptr<const MappedFile>> RestrictedFiles::MapFile(
    const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Place place, Find(path));
  return files_.MapFileBeneath(place.folder, place.relative);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> RestrictedFiles::MapFileBeneath(
    const std::string& directory, const std::string& relative_path) {
  WEFT_ASSIGN_OR_RETURN(const Place place, Find(directory));
  // From the allowed folder on in one step. There "..", which the kernel would stop at
  // `directory`, could lead to its neighbours.
  const std::vector<std::string> parts = absl::StrSplit(relative_path, '/');
  if (parts.front().empty() || std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the path '", relative_path,
                                                   "' is absolute or has '..'; expected one from '",
                                                   directory, "' on"));
  }
  return files_.MapFileBeneath(place.folder, absl::StrCat(place.relative, "/", relative_path));
}

absl::Status RestrictedFiles::WriteFileAtomically(const std::string& path, std::string_view bytes) {
  if (!writable_) return NeverAllowed("write files that jobs read", path);
  WEFT_ASSIGN_OR_RETURN(const Place place, Find(path));
  return WriteFileBeneath(place.folder, place.relative, bytes);
}

bool RestrictedFiles::Exists(const std::string& path) {
  const absl::StatusOr<Place> place = Find(path);
  return place.ok() && files_.Exists(place->path());
}

absl::StatusOr<std::vector<std::string>> RestrictedFiles::ListDirectory(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Place place, Find(path));
  return files_.ListDirectory(place.path());
}

absl::StatusOr<std::unique_ptr<WritableFile>> RestrictedFiles::OpenAppend(const std::string& path) {
  return NeverAllowed("add to files", path);
}

absl::StatusOr<std::unique_ptr<WritableFile>> RestrictedFiles::OpenEmpty(const std::string& path) {
  return NeverAllowed("empty files", path);
}

absl::Status RestrictedFiles::CreateDirectories(const std::string& path) {
  return NeverAllowed("make folders", path);
}

absl::Status RestrictedFiles::RemoveFile(const std::string& path) {
  return NeverAllowed("remove files", path);
}

}  // namespace weft
