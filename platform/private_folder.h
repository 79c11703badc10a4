// PrivateFolder: a folder of files that nobody but this user can have written.
#ifndef WEFT_PLATFORM_PRIVATE_FOLDER_H_
#define WEFT_PLATFORM_PRIVATE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft {

// For files that must not come from others, such as code that is loaded. Names are of files right
// in the folder: no '/', and no "." or "..", else InvalidArgument. Errors as FileSystem's.
// Thread-safe; other processes may use the same folder meanwhile.
class PrivateFolder {
 public:
  struct Entry {
    std::string name;
    int64_t bytes = 0;
    absl::Time used;  // when it was written or marked last
  };
  virtual ~PrivateFolder() = default;

  // A whole file. NotFound where there is none; PermissionDenied where it is a link, no regular
  // file, another user's, or one that others can write; ResourceExhausted above `maximum_bytes`.
  virtual absl::StatusOr<std::string> Read(const std::string& name, int64_t maximum_bytes) = 0;

  // Creates or replaces a file, with mode 0600, at once or not at all. What was there by that name
  // is no longer, be it a link or another's. It is not flushed to the disk: a crash of the machine
  // can leave a damaged file.
  virtual absl::Status Write(const std::string& name, std::string_view bytes) = 0;

  // Says that a file is used now.
  virtual absl::Status MarkUsed(const std::string& name) = 0;

  // The regular files, in no order, those of interrupted writes among them.
  virtual absl::StatusOr<std::vector<Entry>> List() = 0;

  // NotFound where there is none.
  virtual absl::Status Remove(const std::string& name) = 0;

  // Whether a name of List is a file that a write, now or of a process that ended, did not finish.
  static bool IsUnfinished(std::string_view name);
};

// A folder of the machine. Creates it and the missing ones above it, with mode 0700.
// PermissionDenied where it is another user's, or one that others can write. What is opened stays
// the same folder when its path becomes another's.
absl::StatusOr<std::unique_ptr<PrivateFolder>> OpenPrivateFolder(const std::string& path);

}  // namespace weft

#endif  // WEFT_PLATFORM_PRIVATE_FOLDER_H_
