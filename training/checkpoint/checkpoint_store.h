// CheckpointStore: the folder of a job's checkpoints.
#ifndef WEFT_TRAINING_CHECKPOINT_CHECKPOINT_STORE_H_
#define WEFT_TRAINING_CHECKPOINT_CHECKPOINT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/checkpoint_index.h"

namespace weft {

// A checkpoint exists once its folder has its final name (law 1 of training/checkpoint/README.md).
// One job writes to a store at a time. Borrows file system and folders. One thread.
class CheckpointStore {
 public:
  CheckpointStore(FileSystem& files, Folders& folders, std::string root)
      : files_(files), folders_(folders), root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  // "DIR/step-00000100".
  std::string PathOf(int64_t step) const;

  // The steps of the checkpoints that are there, in order, damaged or not. None when the folder is
  // not there.
  absl::StatusOr<std::vector<int64_t>> Steps();
  // Removes what was left half written or half removed; returns what it removed. Creates nothing.
  absl::StatusOr<std::vector<std::string>> CleanUp();
  // The newest checkpoint that is whole. Newer ones that are damaged are set aside as
  // NAME.damaged; `notes` gets a line for each, with the reason.
  absl::StatusOr<std::optional<Checkpoint>> OpenNewest(std::vector<std::string>& notes);

  // Sets those of later steps than `step` aside as NAME.suspect, where no resume looks: their state
  // may be wrong. Their steps, in order.
  absl::StatusOr<std::vector<int64_t>> SetAsideAfter(int64_t step);

  // A new folder to write the files of a checkpoint to; `unique` tells it from those of other jobs.
  absl::StatusOr<std::string> Begin(int64_t step, uint64_t unique);
  // Checks that the files are there, writes the index and gives the folder its name. Replaces a
  // checkpoint of the same step.
  absl::Status Commit(const std::string& folder, const CheckpointIndex& index);
  // Removes a folder of Begin, as far as that can be done.
  void Abandon(const std::string& folder);
  // Removes all but the `keep` newest.
  absl::Status Prune(int keep);

 private:
  // Gives the folder its name with the suffix, in place of one that has it; the new path.
  absl::StatusOr<std::string> SetAside(const std::string& path, const char* suffix);

  FileSystem& files_;
  Folders& folders_;
  const std::string root_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_CHECKPOINT_STORE_H_
