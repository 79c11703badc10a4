// HeldSnapshots: the snapshots in a worker's memory.
#ifndef WEFT_DISTRIBUTED_RECOVERY_HELD_SNAPSHOTS_H_
#define WEFT_DISTRIBUTED_RECOVERY_HELD_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/recovery/held_state.h"
#include "executor/variables/snapshot_image.h"
#include "executor/variables/variable_store.h"
#include "graph/partition.h"
#include "platform/mutex.h"
#include "tensor/tensor.h"

namespace weft {

// What a snapshot of a rank holds: the variables that a step of the partition changes. `primaries`:
// of these only the parts whose primary copy the rank has, so that the snapshots of all ranks hold
// each part once, as a checkpoint does.
std::vector<VariableShard> SnapshotVariables(const Partition& partition, bool primaries);

// Copies the variables as they are now into `image`, which has layout.bytes bytes on the host.
// REQUIRES: no step is running.
absl::Status FillSnapshot(VariableStore& variables, const SnapshotLayout& layout,
                          const Tensor& image);

// Holds images by key; their memory is shared with who gives them. Thread-safe; an image must not
// be written while it is held (Forget it before).
class HeldSnapshots {
 public:
  // In place of one of the same key. `image`: uint8 [about.bytes], on the host.
  void Hold(const HeldSnapshot& about, Tensor image);
  void Forget(const SnapshotKey& key);
  // Gives up what is of other jobs than this one; 0: everything.
  void KeepOnly(uint64_t job_id);
  bool empty() const;

  // What is held. `verify`: the bytes are read, and is_whole says whether they still have their
  // checksum (some 10 GB/s).
  HeldState State(bool verify) const;
  // NotFound where it is not held; OutOfRange beyond its end, or for more than kHeldPartBytes.
  absl::StatusOr<HeldPart> Read(const SnapshotKey& key, int64_t offset, int64_t bytes) const;

 private:
  struct Held {
    HeldSnapshot about;
    Tensor image;
  };
  mutable Mutex mutex_;
  std::map<SnapshotKey, Held> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_HELD_SNAPSHOTS_H_
