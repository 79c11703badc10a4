// Offsets in one arena by lifetime.
#ifndef WEFT_GRAPH_SCHEDULE_MEMORY_PLAN_H_
#define WEFT_GRAPH_SCHEDULE_MEMORY_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// A buffer that must exist from instruction `first` to `last`, both included.
struct BufferLifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  // >= 0: buffers of one group are laid side by side in index order (a bucket of gradients), with a
  // common lifetime (the union) and `kAlignment` between them.
  int group = -1;
  friend bool operator==(const BufferLifetime&, const BufferLifetime&) = default;
};

// Where each buffer lies in an arena. Bytes.
struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per buffer, multiples of kAlignment
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  // the most bytes alive at any one instruction
};

// Tries the ways of quick_placement.h, each O(n log n) for n buffers: sweeps over time in both
// directions with a free list, and towers. Where none of them reaches the lower bound: greedy by
// size into the smallest gap that fits (Pisarchyk and Lee, 2020), also by size x lifetime and by
// lifetime, each a few times with the blocks that ended highest placed first, for as long as a
// count of what it looks at lets it. The lowest arena wins, or the first one of at most
// `enough_bytes`. Of more than a thousand buffers also the first one within a hundredth of the
// lower bound. Takes a few microseconds for each buffer of many. Deterministic. ResourceExhausted
// on overflow, InvalidArgument for a lifetime that ends before it starts.
absl::StatusOr<MemoryPlan> PlanMemory(const std::vector<BufferLifetime>& buffers,
                                      int64_t enough_bytes = 0);

// MemoryPlan::lower_bound_bytes alone, which takes next to no time. Errors as above.
absl::StatusOr<int64_t> MinArenaBytes(const std::vector<BufferLifetime>& buffers);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_MEMORY_PLAN_H_
