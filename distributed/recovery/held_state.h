// HeldState: what a worker holds in its memory of the states of jobs: its own, and those of peers
// that it is the keeper of.
#ifndef WEFT_DISTRIBUTED_RECOVERY_HELD_STATE_H_
#define WEFT_DISTRIBUTED_RECOVERY_HELD_STATE_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Whose state a snapshot is, and after which step.
struct SnapshotKey {
  uint64_t job_id = 0;  // JobMembership::job_id of the job that it was made in
  int32_t rank = 0;     // in that job
  int64_t step = 0;     // steps of the job that were done: it goes on with the step of this number
  friend auto operator<=>(const SnapshotKey&, const SnapshotKey&) = default;
};

// One snapshot: the variables of a rank, as bytes that say what they are
// (executor/variables/snapshot_image.h).
struct HeldSnapshot {
  SnapshotKey key;
  // All bytes are here, and have the checksum that their rank has stamped them with.
  bool is_whole = false;
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64, by the rank whose state it is
  friend bool operator==(const HeldSnapshot&, const HeldSnapshot&) = default;
};

// Ordered by key; a key comes once.
struct HeldState {
  std::vector<HeldSnapshot> snapshots;
};

// Some of a snapshot's bytes.
struct HeldPart {
  std::string bytes;
};

// So many bytes of a snapshot travel in one answer at most.
inline constexpr int64_t kHeldPartBytes = int64_t{1} << 20;

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_HELD_STATE_H_
