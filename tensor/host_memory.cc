#include "tensor/host_memory.h"

#include <utility>

#include "tensor/device.h"

namespace weft {
namespace {

class AdoptedBuffer final : public Buffer {
 public:
  AdoptedBuffer(const void* data, size_t size, std::shared_ptr<const void> owner)
      : Buffer(CpuDevice(), const_cast<void*>(data), size), owner_(std::move(owner)) {}

 private:
  const std::shared_ptr<const void> owner_;
};

}  // namespace

std::shared_ptr<Buffer> AdoptHostMemory(const void* data, size_t size,
                                        std::shared_ptr<const void> owner) {
  return std::make_shared<AdoptedBuffer>(data, size, std::move(owner));
}

}  // namespace weft
