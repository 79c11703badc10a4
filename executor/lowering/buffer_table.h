// The buffers of a step while it is being lowered: who lives where, and for how long.
#ifndef WEFT_EXECUTOR_LOWERING_BUFFER_TABLE_H_
#define WEFT_EXECUTOR_LOWERING_BUFFER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/schedule/memory_plan.h"

namespace weft {

using BufferIndex = int;
inline constexpr BufferIndex kNoBuffer = -1;

// Buffers by index. Buffers may be merged (a view, an update in place): they then share memory and
// the union of their lifetimes. Fixed buffers (variables, constants, scalars) have an address of
// their own; the others get one from the arena.
class BufferTable {
 public:
  // Buffers of one group (>= 0) lie side by side, in the order in which they were added.
  BufferIndex AddArena(int64_t bytes, int group = -1);
  // The same for what outlives an action: sums over micro-batches, and what the communication list
  // works on.
  BufferIndex AddReserved(int64_t bytes, int group = -1);
  BufferIndex AddFixed(void* address, int64_t bytes);

  // Of a fixed buffer whose memory comes later than it.
  void SetAddress(BufferIndex buffer, void* address) { records_[buffer].address = address; }

  // Instruction `position` touches the buffer.
  void Touch(BufferIndex buffer, int position);
  // Nothing has been touched.
  void ClearLifetimes();
  // `view` becomes another name of `base`. REQUIRES: view is an arena buffer without a group that
  // nothing has been merged into.
  void Merge(BufferIndex view, BufferIndex base);
  // The buffer that stands for all merged with `buffer`.
  BufferIndex Root(BufferIndex buffer) const;

  bool is_fixed(BufferIndex buffer) const { return records_[Root(buffer)].fixed; }
  bool in_group(BufferIndex buffer) const { return records_[Root(buffer)].group >= 0; }
  // 0 of kNoBuffer, whose address is null.
  int64_t bytes(BufferIndex buffer) const {
    return buffer == kNoBuffer ? 0 : records_[buffer].bytes;
  }
  int first(BufferIndex buffer) const { return records_[Root(buffer)].first; }
  int last(BufferIndex buffer) const { return records_[Root(buffer)].last; }
  int size() const { return static_cast<int>(records_.size()); }

  // Plans the arena; afterwards AddressIn says where a buffer is when the arena begins at `arena`.
  // Does not depend on the order in which buffers were added, but for reserved ones and for those
  // of one instruction. ResourceExhausted, in next to no time, where more than `max_bytes` are
  // alive at once.
  absl::StatusOr<MemoryPlan> PlanArena(int64_t max_bytes = std::numeric_limits<int64_t>::max());
  void* AddressIn(BufferIndex buffer, void* arena) const;

 private:
  struct Record {
    int64_t bytes = 0;
    bool fixed = false;
    void* address = nullptr;
    int64_t offset = 0;
    int group = -1;
    bool reserved = false;
    int first = -1;
    int last = -1;
    BufferIndex parent = kNoBuffer;  // merged into
  };
  // Those that need a place in the arena: reserved ones, then the others as they are touched first.
  std::vector<BufferIndex> ArenaBuffers() const;

  std::vector<Record> records_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_BUFFER_TABLE_H_
