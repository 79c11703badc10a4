// CPU devices beyond the process's own one.
#ifndef WEFT_TENSOR_CPU_DEVICE_H_
#define WEFT_TENSOR_CPU_DEVICE_H_

#include <cstddef>
#include <memory>

#include "tensor/device.h"

namespace weft {

// A CPU device that counts, and limits to `info.memory_limit`, what is allocated through it: for
// workers with a memory budget and for tests. `info.kind` and `info.host_accessible` are set to
// those of a CPU; an empty name becomes "cpu:<index>". REQUIRES at its end: no buffer of it is
// alive.
//
// Streams run their work at once, in the thread that enqueues; so events are always done, and a
// Wait for an event of another device that is not done yet is FailedPrecondition.
// Allocations of 2 MiB and more are mapped on their own, on huge pages where the system has them.
std::unique_ptr<Device> NewCpuDevice(DeviceInfo info);

// While it lives, the process's own device, CpuDevice(), allocates at most `bytes`, or the memory
// of the machine if that is less: for a program whose tensors must leave room for others. What is
// in use counts. One at a time; made and destroyed while no other thread uses the device.
class CpuMemoryLimit {
 public:
  explicit CpuMemoryLimit(size_t bytes);
  ~CpuMemoryLimit();
  CpuMemoryLimit(const CpuMemoryLimit&) = delete;
  CpuMemoryLimit& operator=(const CpuMemoryLimit&) = delete;

 private:
  const size_t before_;
};

}  // namespace weft

#endif  // WEFT_TENSOR_CPU_DEVICE_H_
