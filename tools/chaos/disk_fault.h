// DiskFault: a folder in which nothing can be made for a while.
#ifndef WEFT_TOOLS_CHAOS_DISK_FAULT_H_
#define WEFT_TOOLS_CHAOS_DISK_FAULT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// As root, the folder is a file system in memory (tmpfs) that can be full: whoever makes a file
// gets ENOSPC. It is mounted for this thread and the processes that it starts from then on alone,
// so the kernel takes it away when they have ended. Where it cannot be mounted, a file takes the
// folder's place meanwhile: whoever makes a file in it gets ENOTDIR. One thread.
class DiskFault {
 public:
  // Makes the folder. The system's error where that cannot be.
  static absl::StatusOr<std::unique_ptr<DiskFault>> Create(const std::string& folder);
  DiskFault(const DiskFault&) = delete;
  DiskFault& operator=(const DiskFault&) = delete;
  ~DiskFault();

  // Why the folder will be away instead of full; "": it will be full.
  const std::string& why_not_full() const { return why_not_full_; }
  absl::Status Begin();
  absl::Status End();
  bool is_on() const { return is_on_; }
  // Everything in the folder is gone afterwards.
  absl::Status Clear();

 private:
  DiskFault(std::string folder, std::string why_not_full)
      : folder_(std::move(folder)), why_not_full_(std::move(why_not_full)) {}
  // A tmpfs with room for so many files and folders takes the place of the limit before.
  absl::Status LimitFiles(const std::string& count) const;
  absl::Status Swap() const;
  std::string stand_in() const { return folder_ + ".away"; }

  const std::string folder_;
  const std::string why_not_full_;
  bool is_on_ = false;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_DISK_FAULT_H_
