// A FileSystem that allows certain folders alone.
#ifndef WEFT_PLATFORM_RESTRICTED_FILES_H_
#define WEFT_PLATFORM_RESTRICTED_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "platform/file_system.h"

namespace weft {

// The files below some folders of another file system. Everything else is PermissionDenied, with
// one text whether it exists or not; so is a path that leaves the folders by ".." or by a symbolic
// link, and a last part that is a link to elsewhere. Paths must be absolute or are taken from the
// working folder. It does not guard against whoever may change the folders themselves while it
// looks. Thread-safe if `files` is, which it borrows.
class RestrictedFiles final : public FileSystem {
 public:
  // `folders` need not exist; "/" allows all.
  RestrictedFiles(FileSystem& files, const std::vector<std::string>& folders);

  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
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

 private:
  absl::Status Check(const std::string& path) const;

  FileSystem& files_;
  std::vector<std::string> folders_;  // canonical, each with '/' at its end
};

}  // namespace weft

#endif  // WEFT_PLATFORM_RESTRICTED_FILES_H_
