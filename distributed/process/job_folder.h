// JobFolder: where the sockets and the token of one job's local workers lie.
#ifndef WEFT_DISTRIBUTED_PROCESS_JOB_FOLDER_H_
#define WEFT_DISTRIBUTED_PROCESS_JOB_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_descriptor.h"

namespace weft {

// A new folder "weft-XXXXXX" (0700), removed with what is in it by the destructor. A process that
// is killed leaves it behind; whoever makes the next one in the same place removes it then. The
// owner is told by a lock on a file in the folder, which ends with its process. Movable.
class JobFolder {
 public:
  // Below `place`, the system's folder for temporary files. The system's error where that cannot
  // be.
  static absl::StatusOr<JobFolder> Create(const std::string& place);
  JobFolder(JobFolder&& other) noexcept;
  JobFolder& operator=(JobFolder&&) = delete;
  ~JobFolder();

  const std::string& path() const { return path_; }

 private:
  JobFolder(std::string path, FileDescriptor lock);

  std::string path_;  // "": moved from
  FileDescriptor lock_;
};

// Removes folders of jobs of this user whose processes have ended, and says which. Others stay:
// those of other users, those that are not quite as a job leaves them, and what is no folder.
std::vector<std::string> RemoveEndedJobFolders(const std::string& place);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_JOB_FOLDER_H_
