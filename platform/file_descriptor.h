// FileDescriptor: owns a descriptor of the operating system.
#ifndef WEFT_PLATFORM_FILE_DESCRIPTOR_H_
#define WEFT_PLATFORM_FILE_DESCRIPTOR_H_

#include <unistd.h>

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

}  // namespace weft

#endif  // WEFT_PLATFORM_FILE_DESCRIPTOR_H_
