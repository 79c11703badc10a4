// A FileSystem that allows certain folders alone.
#ifndef WEFT_PLATFORM_RESTRICTED_FILES_H_
#define WEFT_PLATFORM_RESTRICTED_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/file_system.h"

namespace weft {

// The folders whose files others may name, what they may do with them, and the flag of the program
// that adds to them, for error texts.
struct AllowedFolders {
  std::vector<std::string> folders;  // need not exist; "/" allows all; none: nothing is allowed
  bool writable = false;             // also to replace whole files
  std::string flag;                  // "--data-root"
};

// The files below some folders of the machine, for a process that is told paths by others: it
// reads, maps and lists, and where they are writable replaces whole files; all else is
// PermissionDenied. So is a path that leaves the folders, by ".." or by a symbolic link, with one
// text whether it exists or not: the path, the folders and the flag that adds one.
//
// A path is found once, without links, and a file opened beneath its folder in one step of the
// kernel: who changes a part of it to a link meanwhile gains nothing but names (Exists,
// ListDirectory). The folders' own paths must be out of such reach. Paths are absolute or taken
// from the working folder. Reads go through `files`, which it borrows: the real ones, or those of a
// test. Thread-safe if `files` is.
class RestrictedFiles final : public FileSystem {
 public:
  RestrictedFiles(FileSystem& files, const AllowedFolders& allowed);

  absl::StatusOr<std::string> ReadFileUpTo(const std::string& path, int64_t maximum_bytes) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFileBeneath(
      const std::string& directory, const std::string& relative_path) override;
  absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;

  // Never allowed.
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenEmpty(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;

 private:
  struct Place {
    std::string folder;    // one of folders_
    std::string relative;  // from there; "." for the folder itself
    std::string path() const { return folder + relative; }
  };
  absl::StatusOr<Place> Find(const std::string& path) const;
  absl::Status Outside(const std::string& path) const;

  FileSystem& files_;
  const bool writable_;
  const std::string flag_;
  std::vector<std::string> folders_;  // canonical, each with '/' at its end
};

}  // namespace weft

#endif  // WEFT_PLATFORM_RESTRICTED_FILES_H_
