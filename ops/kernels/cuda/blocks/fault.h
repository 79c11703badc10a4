// Bodies report bad data (tensor/device_fault.h) and go on without it.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_FAULT_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_FAULT_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "tensor/device_fault.h"

namespace weft::cuda {

// Where a body reports, and what it checks: values in [low, high).
struct FaultReport {
  DeviceFault* fault = nullptr;  // Stream::fault()
  const char* source = nullptr;  // DeviceFault::source
  int64_t low = 0;
  int64_t high = 0;
};

// True if `value` is in the range; else reports it. `position`: of the element in its tensor.
template <class Gpu>
WEFT_GPU bool InRange(Gpu& gpu, const FaultReport& report, int64_t value, int64_t position) {
  if (value >= report.low && value < report.high) return true;
  const auto is_set = gpu.Global(&report.fault->is_set);
  if (gpu.AtomicCompareExchange(is_set, 0, int32_t{0}, int32_t{1}) == 0) {
    const auto fault = gpu.Global(&report.fault->value);  // value, position, low, high
    fault[0] = value;
    fault[1] = position;
    fault[2] = report.low;
    fault[3] = report.high;
    const auto source = gpu.Global(&report.fault->source);
    source[0] = report.source;
  }
  return false;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_FAULT_H_
