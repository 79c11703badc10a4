// MemoryWork: what a program does to memory between kernels, as each kind of device does it.
#ifndef WEFT_OPS_MEMORY_WORK_H_
#define WEFT_OPS_MEMORY_WORK_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft {

// `rows` runs of `bytes` bytes, from source to target with these strides (all in bytes).
struct CopyRegion {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
  int64_t source_offset = 0;
  int64_t target_offset = 0;
};

// The arguments of the works below. Addresses are the device's, and aligned to an element; they may
// be null where there is nothing to do. What is read and what is written do not overlap.

// into[i] += from[i].
struct SumArguments {
  DType dtype = DType::kInvalid;
  int64_t elements = 0;
  const void* from = nullptr;
  void* into = nullptr;
};

// The rows of the region.
struct RowsArguments {
  CopyRegion region;
  const void* from = nullptr;
  void* into = nullptr;
};

// *first = the first element that is an infinity or a NaN, or kAllFinite.
struct FiniteArguments {
  static constexpr int64_t kAllFinite = std::numeric_limits<int64_t>::max();
  DType dtype = DType::kInvalid;
  int64_t elements = 0;
  const void* data = nullptr;
  int64_t* first = nullptr;
};

// Each is the `run` of a Work (tensor/device.h) and takes a pointer to its arguments. It computes
// where the device runs host work, and launches on the stream where it does not. 16-bit floats are
// summed in float32 and rounded to nearest even; the result has the same bits on every device. Sums
// are Unimplemented for bool and for types that DispatchDType does not know. The search looks at
// floats of 16 to 64 bits; of other types all elements are finite.
struct MemoryWork {
  using Run = absl::Status (*)(void* arguments, Stream& stream);
  Run sum = nullptr;              // SumArguments
  Run copy_rows = nullptr;        // RowsArguments
  Run find_non_finite = nullptr;  // FiniteArguments
};

// Where a kind of device launches, its works are registered by the library of its kernels, before
// main, once. True, so that a static can be initialised with it.
bool RegisterMemoryWork(DeviceKind kind, const MemoryWork& work);
// Null where nobody registered any: this build has no kernels for such devices. Valid for ever.
const MemoryWork* FindMemoryWork(DeviceKind kind);

}  // namespace weft

#endif  // WEFT_OPS_MEMORY_WORK_H_
