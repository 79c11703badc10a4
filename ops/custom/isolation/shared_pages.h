// SharedPages: memory that two processes see.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_SHARED_PAGES_H_
#define WEFT_OPS_CUSTOM_ISOLATION_SHARED_PAGES_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "platform/file_descriptor.h"

namespace weft {

// Owns a mapping, and the descriptor by which another process maps the same pages. Its size is
// sealed: the other side cannot take pages away under a reader. Movable. What lies in it may change
// at any time while the other process runs.
class SharedPages {
 public:
  SharedPages() = default;
  // New pages, all zeros; they take memory when they are first touched. ResourceExhausted.
  static absl::StatusOr<SharedPages> Create(size_t bytes);
  // Those of another process.
  static absl::StatusOr<SharedPages> Map(FileDescriptor descriptor, size_t bytes);
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  FileDescriptor descriptor_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A file without a name that holds `bytes` and that nobody can change any more. `name` is for
// people who look at the process.
absl::StatusOr<FileDescriptor> SealedFile(const std::string& name,
                                          std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_SHARED_PAGES_H_
