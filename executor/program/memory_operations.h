// What the host does to memory between kernels: sums, strided copies, the search for what is not
// finite. Internal to executor/ and to communicators.
#ifndef WEFT_EXECUTOR_PROGRAM_MEMORY_OPERATIONS_H_
#define WEFT_EXECUTOR_PROGRAM_MEMORY_OPERATIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/memory_work.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft {

// target += source, element by element; float types, float64 and integers.
absl::Status AddInto(DType dtype, int64_t elements, const void* source, void* target);
// Copies the rows of `region`.
void CopyRows(const CopyRegion& region, const void* source, void* target);
// First element of a floating tensor that is not finite, or -1.
int64_t FindNonFinite(DType dtype, int64_t elements, const void* data);

// The same as work of a device: that of the functions above where it runs host work, else what its
// kernels registered. Unimplemented, naming the device, where this build has no such kernels. Valid
// for ever.
absl::StatusOr<const MemoryWork*> MemoryWorkOf(const Device& device);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_MEMORY_OPERATIONS_H_
