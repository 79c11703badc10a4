// What a program does to memory between kernels, on CUDA devices.
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/memory/memory_launch.h"
#include "ops/memory_work.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft::cuda {
namespace {

LaunchQueue QueueOfStream(const Stream& stream) { return {stream.native_handle()}; }

absl::Status SumOnGpu(void* argument, Stream& stream) {
  const auto& sum = *static_cast<const SumArguments*>(argument);
  absl::Status status = absl::UnimplementedError(absl::StrCat(
      "cannot sum values of type ", std::string(DTypeName(sum.dtype)), " over micro-batches"));
  DispatchDType(sum.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      status =
          LaunchStatus(LaunchSum<T>(QueueOfStream(stream), sum.elements,
                                    static_cast<const T*>(sum.from), static_cast<T*>(sum.into)),
                       "a sum");
    }
  });
  return status;
}

absl::Status CopyRowsOnGpu(void* argument, Stream& stream) {
  const auto& copy = *static_cast<const RowsArguments*>(argument);
  const CopyRegion& region = copy.region;
  if (region.rows == 0 || region.bytes == 0) return absl::OkStatus();
  const RowsToCopy rows{region.rows, region.bytes, region.source_stride, region.target_stride};
  return LaunchStatus(LaunchCopyRows(QueueOfStream(stream), rows,
                                     static_cast<const char*>(copy.from) + region.source_offset,
                                     static_cast<char*>(copy.into) + region.target_offset),
                      "a strided copy");
}

absl::Status FindNonFiniteOnGpu(void* argument, Stream& stream) {
  const auto& search = *static_cast<const FiniteArguments*>(argument);
  constexpr int64_t kNone = FiniteArguments::kAllFinite;
  const LaunchQueue queue = QueueOfStream(stream);
  int code = LaunchSetFirst(queue, kNone, search.first);
  DispatchDType(search.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Float16> ||
                  std::is_same_v<T, Bfloat16>) {
      if (code != 0 || search.elements == 0) return;
      code = LaunchFindNonFinite<T>(queue, search.elements, static_cast<const T*>(search.data),
                                    kNone, search.first);
    }
  });
  return LaunchStatus(code, "a search for what is not finite");
}

[[maybe_unused]] const bool memory_work_is_registered =
    RegisterMemoryWork(DeviceKind::kCuda, {SumOnGpu, CopyRowsOnGpu, FindNonFiniteOnGpu});

}  // namespace
}  // namespace weft::cuda
