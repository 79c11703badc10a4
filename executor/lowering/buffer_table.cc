#include "executor/lowering/buffer_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

BufferIndex BufferTable::AddArena(int64_t bytes, int group) {
  Record record;
  record.bytes = bytes;
  record.group = group;
  records_.push_back(record);
  return size() - 1;
}

BufferIndex BufferTable::AddFixed(void* address, int64_t bytes, bool writable) {
  Record record;
  record.bytes = bytes;
  record.fixed = true;
  record.writable = writable;
  record.address = address;
  records_.push_back(record);
  return size() - 1;
}

BufferIndex BufferTable::Root(BufferIndex buffer) const {
  while (records_[buffer].parent != kNoBuffer) buffer = records_[buffer].parent;
  return buffer;
}

void BufferTable::Touch(BufferIndex buffer, int position) {
  Record& record = records_[Root(buffer)];
  record.first = record.first < 0 ? position : std::min(record.first, position);
  record.last = std::max(record.last, position);
}

void BufferTable::Merge(BufferIndex view, BufferIndex base) {
  const BufferIndex child = Root(view);
  const BufferIndex root = Root(base);
  if (child == root) return;
  const Record merged = records_[child];
  records_[child].parent = root;
  records_[root].bytes = std::max(records_[root].bytes, merged.bytes);
  if (merged.first >= 0) {
    Touch(root, merged.first);
    Touch(root, merged.last);
  }
}

absl::StatusOr<MemoryPlan> BufferTable::PlanArena(int64_t max_bytes) {
  std::vector<BufferLifetime> lifetimes;
  std::vector<BufferIndex> planned;
  for (BufferIndex i = 0; i < size(); ++i) {
    const Record& record = records_[i];
    if (record.fixed || record.parent != kNoBuffer) continue;
    if (record.first < 0 && record.group < 0) continue;  // never used
    lifetimes.push_back(
        {record.bytes, std::max(record.first, 0), std::max(record.last, 0), record.group});
    planned.push_back(i);
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t least, MinArenaBytes(lifetimes));
  if (least > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a step has ", least, " bytes at one time; there may be ", max_bytes, " of them"));
  }
  WEFT_ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(lifetimes));
  for (size_t i = 0; i < planned.size(); ++i) records_[planned[i]].offset = plan.offsets[i];
  return plan;
}

void* BufferTable::AddressIn(BufferIndex buffer, void* arena) const {
  if (buffer == kNoBuffer) return nullptr;
  const Record& record = records_[Root(buffer)];
  if (record.fixed) return record.address;
  return static_cast<char*>(arena) + record.offset;
}

}  // namespace weft
