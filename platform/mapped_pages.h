// The pages of read-only file mappings, which the system can read again.
#ifndef WEFT_PLATFORM_MAPPED_PAGES_H_
#define WEFT_PLATFORM_MAPPED_PAGES_H_

#include <cstddef>
#include <span>

namespace weft {

// While it lives, `bytes` is known to be a read-only mapping of a file.
class MappedPages {
 public:
  explicit MappedPages(std::span<const std::byte> bytes);
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

 private:
  const std::byte* const begin_;
};

// Says that what lies in mapped files among `bytes` will hardly be read again: its whole pages stop
// to count as this process's memory, and a later read gets them from the file once more. Does
// nothing to other memory. Thread-safe, also against readers of these bytes.
void ReleaseMappedPages(std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_PLATFORM_MAPPED_PAGES_H_
