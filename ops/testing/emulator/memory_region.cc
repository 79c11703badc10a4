#include "ops/testing/emulator/memory_region.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

std::shared_ptr<MemoryRegion> FindRegion(
    const std::map<uintptr_t, std::shared_ptr<MemoryRegion>>& regions, uintptr_t address) {
  auto next = regions.upper_bound(address);
  if (next == regions.begin()) return nullptr;
  const auto& [begin, region] = *std::prev(next);
  return address - begin <= region->bytes ? region : nullptr;
}

}  // namespace

void EmulatedMemory::Add(void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  // Where memory is used again, what lay there before is gone.
  auto old = freed_.upper_bound(begin);
  if (old != freed_.begin() && std::prev(old)->first + std::prev(old)->second->bytes >= begin) {
    --old;
  }
  while (old != freed_.end() && old->first <= begin + bytes) old = freed_.erase(old);
  regions_[begin] =
      std::make_shared<MemoryRegion>(absl::StrCat("allocation ", ++allocations_), data, bytes);
}

void EmulatedMemory::Remove(void* data) {
  const auto found = regions_.find(reinterpret_cast<uintptr_t>(data));
  if (found == regions_.end()) return;
  found->second->is_freed = true;
  freed_[found->first] = found->second;
  regions_.erase(found);
}

std::shared_ptr<MemoryRegion> EmulatedMemory::Find(const void* address) const {
  const auto number = reinterpret_cast<uintptr_t>(address);
  std::shared_ptr<MemoryRegion> region = FindRegion(regions_, number);
  return region != nullptr ? region : FindRegion(freed_, number);
}

void EmulatedMemory::ForgetAccesses() {
  for (const auto& [begin, region] : regions_) {
    for (size_t i = 0; i < region->bytes; ++i) {
      ByteShadow& byte = region->shadow[i];
      byte = ByteShadow{byte.write == kNeverWritten ? kNeverWritten : kWrittenByHost, 0};
    }
  }
}

}  // namespace weft::testing
