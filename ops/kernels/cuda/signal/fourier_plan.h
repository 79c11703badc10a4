// FourierTables: how a Fourier transform of a size goes, and its tables on a device. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/image/device_table.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"
#include "tensor/device.h"

namespace weft::cuda {

// Value type; copies share the device's memory. Immutable.
class FourierTables {
 public:
  // Of transforms of `length` elements, 1 to 2^24. `in_double`: sums are in float64; those of
  // chirps always are. Waits until the tables are on the device. The errors of the device.
  static absl::StatusOr<FourierTables> Make(Device& device, int64_t length, bool is_inverse,
                                            bool in_double);

  // With the addresses of the tables.
  const FourierPlan& plan() const { return plan_; }
  bool sums_in_double() const { return sums_in_double_; }
  size_t bytes() const { return table_.bytes(); }

 private:
  FourierPlan plan_;
  bool sums_in_double_ = false;
  DeviceTable table_;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PLAN_H_
