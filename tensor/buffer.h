// Reference-counted memory of one device.
#ifndef WEFT_TENSOR_BUFFER_H_
#define WEFT_TENSOR_BUFFER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace weft {

class Device;

// Every pointer handed to a kernel is a multiple of this (oneDNN needs it; see
// docs/architecture.md).
inline constexpr size_t kAlignment = 64;

// A block of memory of one device, owned by the shared_ptrs that point to it. Made by a Device or
// by AdoptHostMemory (tensor/host_memory.h); never resized. Thread-compatible: the bytes are not
// guarded.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  // The device whose memory this is; outlives the buffer.
  Device& device() const { return *device_; }

 protected:
  Buffer(Device& device, void* data, size_t size) : device_(&device), data_(data), size_(size) {}

 private:
  Device* device_;
  void* data_;
  size_t size_;
};

}  // namespace weft

#endif  // WEFT_TENSOR_BUFFER_H_
