#include "executor/lowering/buffer_table.h"

#include <algorithm>
#include <map>
#include <tuple>

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

BufferIndex BufferTable::AddReserved(int64_t bytes, int group) {
  const BufferIndex buffer = AddArena(bytes, group);
  records_[buffer].reserved = true;
  return buffer;
}

BufferIndex BufferTable::AddFixed(void* address, int64_t bytes) {
  Record record;
  record.bytes = bytes;
  record.fixed = true;
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

void BufferTable::ClearLifetimes() {
  for (Record& record : records_) record.first = record.last = -1;
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

std::vector<BufferIndex> BufferTable::ArenaBuffers() const {
  std::map<int, int> first_of_group;
  for (const Record& record : records_) {
    if (record.group < 0 || record.first < 0) continue;
    int& first = first_of_group.try_emplace(record.group, record.first).first->second;
    first = std::min(first, record.first);
  }
  std::vector<std::tuple<int, int, BufferIndex>> keys;
  for (BufferIndex i = 0; i < size(); ++i) {
    const Record& record = records_[i];
    if (record.fixed || record.parent != kNoBuffer) continue;
    const bool in_group = record.group >= 0;
    if (record.first < 0 && !in_group) continue;  // never used
    if (record.reserved) {
      keys.emplace_back(in_group ? -2 : -1, 0, i);
    } else {
      keys.emplace_back(0, in_group ? first_of_group[record.group] : record.first, i);
    }
  }
  std::sort(keys.begin(), keys.end());
  std::vector<BufferIndex> buffers;
  for (const auto& [kind, first, buffer] : keys) buffers.push_back(buffer);
  return buffers;
}

absl::StatusOr<MemoryPlan> BufferTable::PlanArena(int64_t max_bytes) {
  const std::vector<BufferIndex> planned = ArenaBuffers();
  std::vector<BufferLifetime> lifetimes;
  for (const BufferIndex buffer : planned) {
    const Record& record = records_[buffer];
    lifetimes.push_back(
        {record.bytes, std::max(record.first, 0), std::max(record.last, 0), record.group});
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t min_bytes, MinArenaBytes(lifetimes));
  if (min_bytes > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a step has ", min_bytes, " bytes at one time; there may be ", max_bytes, " of them"));
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
