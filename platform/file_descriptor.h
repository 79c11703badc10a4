// FileDescriptor: owns a descriptor of the operating system. WriteWholeFile: fills a new file.
#ifndef WEFT_PLATFORM_FILE_DESCRIPTOR_H_
#define WEFT_PLATFORM_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <cstddef>
#include <span>
#include <utility>

namespace weft {

// Owns a file descriptor of the system and closes it. Movable; -1 stands for none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  bool valid() const { return value_ >= 0; }
  int get() const { return value_; }

  // Closes now; returns what close(2) returned, 0 when there was nothing to close.
  int Close() { return value_ < 0 ? 0 : close(std::exchange(value_, -1)); }

 private:
  int value_ = -1;
};

// So many bytes and more of memory that begins with a page go to the disk past the system's cache.
inline constexpr size_t kDirectWriteBytes = size_t{8} << 20;

// Writes all of `bytes` to an empty regular file that nobody else has open, from its begin on; what
// is done with the descriptor afterwards must not depend on its offset. The bytes are safe only
// after an fsync.
//
// kDirectWriteBytes and more, from memory that begins with a page, get their room on the disk first
// and are then written by O_DIRECT in pieces, several at a time, by threads that end with the call:
// no processor copies them, and no page of the system's cache is taken from others. Where the file
// system cannot do that, and all else, goes through the cache, by this thread. Either way the file
// holds the same bytes. Returns 0, or the errno of a failure; then the file holds anything.
int WriteWholeFile(const FileDescriptor& file, std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_PLATFORM_FILE_DESCRIPTOR_H_
