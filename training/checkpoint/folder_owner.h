// FolderOwner: which of two coordinators may write to a folder of checkpoints.
#ifndef WEFT_TRAINING_CHECKPOINT_FOLDER_OWNER_H_
#define WEFT_TRAINING_CHECKPOINT_FOLDER_OWNER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "platform/file_system.h"

namespace weft {

// The file `coordinator` of the folder has the epoch of the coordinator that has claimed it last,
// and a random number of that process. One that was stopped, or cut off, while another went on with
// its job finds the other's there. Borrows the file system. Check may be called from any thread,
// once the folder is claimed; the others by one.
class FolderOwner {
 public:
  FolderOwner(FileSystem& files, std::string folder);

  // Of who has claimed the folder last; 0: nobody has, or that cannot be read.
  uint64_t Epoch();
  // This process has the folder from now on, with this epoch. Errors are those of the file.
  absl::Status Claim(uint64_t epoch);
  // A DeposedError (distributed/coordinator_epoch.h) where another has claimed the folder since.
  // What cannot be read says nothing, and is OK; so is a folder that this process has not claimed.
  absl::Status Check() const;

 private:
  std::string Path() const;

  FileSystem& files_;
  const std::string folder_;
  const uint64_t unique_;
  uint64_t epoch_ = 0;  // claimed; 0: not yet
};

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_FOLDER_OWNER_H_
