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

// What Linux maps at most when a page is touched (fault_around_bytes), aligned to itself.
constexpr uintptr_t kFaultBytes = uintptr_t{64} << 10;

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

bool ReleaseMappedPages(std::span<const std::byte> bytes) {
  if (bytes.empty()) return false;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t unit = std::max(page, kFaultBytes);
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);  // keeps the mapping alive meanwhile
  auto range = all.ranges.upper_bound(bytes.data());
  if (range == all.ranges.begin()) return false;
  --range;
  if (bytes.data() >= range->second) return false;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t end = begin + bytes.size();
  // A mapping begins with a page and ends within one.
  const auto first_page = reinterpret_cast<uintptr_t>(range->first);
  const uintptr_t last_page = (reinterpret_cast<uintptr_t>(range->second) + page - 1) / page * page;
  const uintptr_t first = std::max(begin / unit * unit, first_page);
  const uintptr_t last = std::min((end + unit - 1) / unit * unit, last_page);
  // Of a private mapping that nobody can write this drops clean pages of the file only.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  return true;
}

}  // namespace weft
