#include "platform/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "platform/mutex.h"

namespace weft {
namespace {

struct Mappings {
  Mutex mutex;
  // First byte to the byte behind the last.
  std::map<const std::byte*, const std::byte*, std::less<>> ranges ABSL_GUARDED_BY(mutex);
};

Mappings& AllMappings() {
  static Mappings* const mappings = new Mappings;
  return *mappings;
}

}  // namespace

MappedPages::MappedPages(std::span<const std::byte> bytes) : begin_(bytes.data()) {
  if (bytes.empty()) return;
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);
  all.ranges[begin_] = begin_ + bytes.size();
}

MappedPages::~MappedPages() {
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);
  all.ranges.erase(begin_);
}

void ReleaseMappedPages(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);  // keeps the mapping alive meanwhile
  auto range = all.ranges.upper_bound(bytes.data());
  if (range == all.ranges.begin()) return;
  --range;
  const std::byte* const end = std::min(bytes.data() + bytes.size(), range->second);
  const uintptr_t first = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first >= last) return;
  // Of a private mapping that nobody can write this drops clean pages of the file only.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace weft
