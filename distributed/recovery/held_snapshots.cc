#include "distributed/recovery/held_snapshots.h"

#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

void AddChanged(const Graph& graph, std::set<std::string>& names) {
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid()) names.insert(variable.name);
  }
}

std::span<const std::byte> BytesOfImage(const Tensor& image) {
  return {static_cast<const std::byte*>(image.raw_data()), image.bytes()};
}

}  // namespace

std::vector<VariableShard> SnapshotVariables(const Partition& partition, bool primaries) {
  std::set<std::string> changed;
  AddChanged(partition.begin, changed);
  for (const Graph& graph : partition.micro) AddChanged(graph, changed);
  AddChanged(partition.end, changed);
  std::vector<VariableShard> shards;
  for (const VariableShard& shard : partition.variables) {
    const bool is_meant = changed.contains(shard.name) && (shard.is_primary || !primaries);
    // A replica without rows of it has none to give.
    const bool has_any =
        shard.local_shape.num_elements() > 0 || shard.global_shape.num_elements() == 0;
    if (is_meant && has_any) shards.push_back(shard);
  }
  return shards;
}

absl::Status FillSnapshot(VariableStore& variables, const SnapshotLayout& layout,
                          const Tensor& image) {
  auto* const bytes = static_cast<std::byte*>(image.raw_data());
  if (static_cast<int64_t>(image.bytes()) != layout.bytes) {
    return absl::InternalError(absl::StrCat("a snapshot of ", layout.bytes,
                                            " bytes is to be copied into ", image.bytes()));
  }
  std::memcpy(bytes, layout.header.data(), layout.header.size());
  int64_t end = static_cast<int64_t>(layout.header.size());
  for (const SnapshotEntry& entry : layout.entries) {
    // What lies between variables has a value, too: the checksum is over all.
    std::memset(bytes + end, 0, static_cast<size_t>(entry.offset - end));
    WEFT_RETURN_IF_ERROR(variables.ReadPart(
        entry.shard.name, 0, {bytes + entry.offset, static_cast<size_t>(entry.bytes())}));
    end = entry.offset + entry.bytes();
  }
  return absl::OkStatus();
}

void HeldSnapshots::Hold(const HeldSnapshot& about, Tensor image) {
  MutexLock lock(mutex_);
  held_[about.key] = Held{about, std::move(image)};
}

void HeldSnapshots::Forget(const SnapshotKey& key) {
  MutexLock lock(mutex_);
  held_.erase(key);
}

void HeldSnapshots::KeepOnly(uint64_t job_id) {
  MutexLock lock(mutex_);
  std::erase_if(held_, [job_id](const auto& one) { return one.first.job_id != job_id; });
}

bool HeldSnapshots::empty() const {
  MutexLock lock(mutex_);
  return held_.empty();
}

HeldState HeldSnapshots::State(bool verify) const {
  std::vector<Held> held;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, one] : held_) held.push_back(one);
  }
  HeldState state;
  for (const Held& one : held) {
    HeldSnapshot& about = state.snapshots.emplace_back(one.about);
    if (verify && about.is_whole) {
      about.is_whole = Checksum(BytesOfImage(one.image)) == about.checksum;
    }
  }
  return state;
}

absl::StatusOr<HeldPart> HeldSnapshots::Read(const SnapshotKey& key, int64_t offset,
                                             int64_t bytes) const {
  Tensor image;
  {
    MutexLock lock(mutex_);
    const auto found = held_.find(key);
    if (found == held_.end()) {
      return absl::NotFoundError(absl::StrCat("the worker holds no state of rank ", key.rank,
                                              " after step ", key.step, " of job ", key.job_id));
    }
    image = found->second.image;
  }
  const auto size = static_cast<int64_t>(image.bytes());
  if (offset < 0 || bytes < 0 || bytes > kHeldPartBytes || offset > size || bytes > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("a held state has ", size, " bytes; asked for ",
                                              bytes, " from byte ", offset, " on, and ",
                                              kHeldPartBytes, " is the most at once"));
  }
  const auto part =
      BytesOfImage(image).subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  return HeldPart{std::string(reinterpret_cast<const char*>(part.data()), part.size())};
}

}  // namespace weft
