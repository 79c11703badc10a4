// Folders: makes, renames and removes folders.
#ifndef WEFT_PLATFORM_FOLDERS_H_
#define WEFT_PLATFORM_FOLDERS_H_

#include <string>

#include "absl/status/status.h"

namespace weft {

// What is done to a folder as a whole, beside FileSystem's files. Errors as FileSystem's.
// Thread-safe; calls on the same path race as the system's own do.
class Folders {
 public:
  virtual ~Folders() = default;

  // Gives the folder another name beside its own, at once or not at all, and for good: its entries
  // are flushed to the disk before, its parent after. AlreadyExists when `to` is there.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Removes the folder and the files in it; fine when it is not there. Symbolic links in it are
  // removed, not followed. FailedPrecondition when it holds other folders.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The machine's.
Folders& RealFolders();

}  // namespace weft

#endif  // WEFT_PLATFORM_FOLDERS_H_
