// The pages of read-only file mappings, which the system can read again.
#ifndef WEFT_PLATFORM_MAPPED_PAGES_H_
#define WEFT_PLATFORM_MAPPED_PAGES_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// While it lives, `bytes` is known to be a read-only mapping of the file `path`.
//
// Where another process has made the file shorter, the system answers a read behind its new end
// with SIGBUS. The first MappedPages installs a handler for that: the rest of the mapping reads as
// zeros from then on, and CheckMappedFiles says so. A SIGBUS of anything else goes its old way.
class MappedPages {
 public:
  explicit MappedPages(std::span<const std::byte> bytes, std::string_view path = "");
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

 private:
  const std::byte* const begin_;
};

// DataLoss naming a mapped file that has become shorter while it was read, since the last call:
// what was computed from it since is worth nothing. A few nanoseconds where there is none. Any
// thread.
absl::Status CheckMappedFiles();

// How much of a mapped file is in memory at a time where it is read from end to end: who reads it
// releases each window of so many bytes.
inline constexpr size_t kMappedWindow = size_t{4} << 20;

// Says that `bytes`, where they lie in a mapped file, will hardly be read again: their pages stop
// to count as this process's memory, and a later read gets them from the file once more. So do the
// pages around them, in units of 64 KiB: the system maps these together when one is read. Does
// nothing to other memory. Whether they lie in a mapped file. Thread-safe, also against readers.
bool ReleaseMappedPages(std::span<const std::byte> bytes);

// Says that `bytes`, where they lie in a mapped file, will be read soon: the system begins to read
// from the disk what is not in memory, in large pieces, and does not wait for it. Does nothing to
// other memory. REQUIRES: the mapping lives meanwhile. Thread-safe.
void ReadMappedPagesAhead(std::span<const std::byte> bytes);

// Calls `visit` with `bytes` in parts of kMappedWindow, in order (once with none), and releases
// each part after it. Meanwhile the system reads the next one from the disk.
template <typename Visit>
void ForEachMappedWindow(std::span<const std::byte> bytes, Visit visit) {
  do {
    const auto part = bytes.first(bytes.size() < kMappedWindow ? bytes.size() : kMappedWindow);
    bytes = bytes.subspan(part.size());
    ReadMappedPagesAhead(bytes.first(bytes.size() < kMappedWindow ? bytes.size() : kMappedWindow));
    visit(part);
    ReleaseMappedPages(part);
  } while (!bytes.empty());
}

}  // namespace weft

#endif  // WEFT_PLATFORM_MAPPED_PAGES_H_
