#include "platform/mapped_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "platform/mutex.h"

namespace weft {
namespace {

// What Linux maps at most when a page is touched (fault_around_bytes), aligned to itself.
constexpr uintptr_t kFaultBytes = uintptr_t{64} << 10;

// A mapping as the signal handler sees it. It may take no lock: entries are found by a list that
// only grows, and used again.
struct Entry {
  std::atomic<uintptr_t> begin{0};  // 0: of no mapping
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
  std::string path;  // not the handler's
  Entry* next = nullptr;
};

struct Range {
  const std::byte* end;  // behind the last
  Entry* entry;
};

struct Mappings {
  Mutex mutex;
  // By the first byte.
  std::map<const std::byte*, Range, std::less<>> ranges ABSL_GUARDED_BY(mutex);
  std::vector<Entry*> free ABSL_GUARDED_BY(mutex);
  std::vector<std::string> lost ABSL_GUARDED_BY(mutex);  // that are mapped no more
};

Mappings& AllMappings() {
  static Mappings* const mappings = new Mappings;
  return *mappings;
}

std::atomic<Entry*> first_entry{nullptr};
std::atomic<bool> any_lost{false};
std::atomic<uintptr_t> page_bytes{0};
struct sigaction earlier_action = {};

// Zeros take the place of what the file no longer has, from the page of this address on. False when
// it lies in no mapping.
bool ReplaceLost(uintptr_t address) {
  for (Entry* entry = first_entry.load(); entry != nullptr; entry = entry->next) {
    const uintptr_t begin = entry->begin.load();
    const uintptr_t end = entry->end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    const uintptr_t page = page_bytes.load();
    const uintptr_t from = address / page * page;
    const uintptr_t to = (end + page - 1) / page * page;
    entry->lost.store(true);
    any_lost.store(true);
    return mmap(reinterpret_cast<void*>(from), to - from, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  const bool replaced = ReplaceLost(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = before;
  if (replaced) return;
  const bool has_handler = (earlier_action.sa_flags & SA_SIGINFO) != 0;
  if (has_handler) return earlier_action.sa_sigaction(signal, info, context);
  // Again, without this handler.
  sigaction(SIGBUS, &earlier_action, nullptr);
}

void InstallHandlerOnce() {
  static const bool installed = [] {
    page_bytes.store(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)));
    struct sigaction action = {};
    action.sa_sigaction = &OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    return sigaction(SIGBUS, &action, &earlier_action) == 0;
  }();
  static_cast<void>(installed);
}

// One that no mapping uses.
Entry* TakeEntry(std::vector<Entry*>& free) {
  if (!free.empty()) {
    Entry* const entry = free.back();
    free.pop_back();
    return entry;
  }
  auto* const entry = new Entry;  // never destroyed: the handler may look at it
  entry->next = first_entry.load();
  first_entry.store(entry);
  return entry;
}

}  // namespace

MappedPages::MappedPages(std::span<const std::byte> bytes, std::string_view path)
    : begin_(bytes.data()) {
  if (bytes.empty()) return;
  InstallHandlerOnce();
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);
  Entry* const entry = TakeEntry(all.free);
  entry->path = path;
  entry->lost.store(false);
  entry->end.store(reinterpret_cast<uintptr_t>(begin_) + bytes.size());
  entry->begin.store(reinterpret_cast<uintptr_t>(begin_));
  all.ranges[begin_] = {begin_ + bytes.size(), entry};
}

MappedPages::~MappedPages() {
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);
  const auto range = all.ranges.find(begin_);
  if (range == all.ranges.end()) return;
  Entry* const entry = range->second.entry;
  entry->begin.store(0);
  if (entry->lost.exchange(false)) all.lost.push_back(std::move(entry->path));
  all.free.push_back(entry);
  all.ranges.erase(range);
}

absl::Status CheckMappedFiles() {
  if (!any_lost.load(std::memory_order_relaxed)) [[likely]]
    return absl::OkStatus();
  Mappings& all = AllMappings();
  const MutexLock lock(all.mutex);
  any_lost.store(false);
  std::vector<std::string> lost = std::exchange(all.lost, {});
  for (const auto& [begin, range] : all.ranges) {
    if (range.entry->lost.exchange(false)) lost.push_back(range.entry->path);
  }
  if (lost.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "file '", lost.front(), "'",
      lost.size() > 1 ? absl::StrCat(" and ", lost.size() - 1, " more") : "",
      " became shorter while it was read: another process has cut it off; put the whole file back, "
      "and replace files by renaming new ones, rather than writing over them"));
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
  if (bytes.data() >= range->second.end) return false;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t end = begin + bytes.size();
  // A mapping begins with a page and ends within one.
  const auto first_page = reinterpret_cast<uintptr_t>(range->first);
  const uintptr_t last_page =
      (reinterpret_cast<uintptr_t>(range->second.end) + page - 1) / page * page;
  const uintptr_t first = std::max(begin / unit * unit, first_page);
  const uintptr_t last = std::min((end + unit - 1) / unit * unit, last_page);
  // Of a private mapping that nobody can write this drops clean pages of the file only.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  return true;
}

void ReadMappedPagesAhead(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  uintptr_t last = 0;
  {
    Mappings& all = AllMappings();
    const MutexLock lock(all.mutex);
    auto range = all.ranges.upper_bound(bytes.data());
    if (range == all.ranges.begin()) return;
    --range;
    if (bytes.data() >= range->second.end) return;
    last = reinterpret_cast<uintptr_t>(range->second.end);
  }
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = begin / page * page;
  // Advice: without it the pages come when they are touched.
  madvise(reinterpret_cast<void*>(first), std::min(begin + bytes.size(), last) - first,
          MADV_WILLNEED);
}

}  // namespace weft
