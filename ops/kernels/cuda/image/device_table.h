// DeviceTable: numbers that a kernel keeps on its device from run to run. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_DEVICE_TABLE_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_DEVICE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace weft::cuda {

// Filled on the host, then uploaded once. Copies share the device's memory. Not thread-safe while
// it is filled.
class DeviceTable {
 public:
  // The offset of the values in bytes, a multiple of 16.
  template <typename T>
  size_t Add(const std::vector<T>& values) {
    return AddBytes(values.data(), values.size() * sizeof(T));
  }
  // Waits for the copy. The errors of the device.
  absl::Status Upload(Device& device);

  // Null before Upload, and where nothing was added.
  const void* At(size_t offset) const;
  size_t bytes() const { return size_; }

 private:
  size_t AddBytes(const void* data, size_t bytes);

  std::string host_;
  size_t size_ = 0;
  std::shared_ptr<Buffer> buffer_;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_DEVICE_TABLE_H_
