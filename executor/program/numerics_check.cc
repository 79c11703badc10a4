#include "executor/program/numerics_check.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "executor/program/memory_operations.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status CheckOutputsFinite(const bound::KernelRun& run, const InstructionInfo& info,
                                Device& device, Stream& stream, absl::Duration timeout) {
  WEFT_RETURN_IF_ERROR(stream.Synchronize(timeout));
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (run.outputs[i] == nullptr || !IsFloatingPoint(info.output_dtypes[i])) continue;
    const void* data = run.outputs[i];
    std::shared_ptr<Buffer> copy;
    if (!device.info().host_accessible) {
      const auto bytes =
          static_cast<size_t>(DTypeBytes(info.output_dtypes[i], info.output_elements[i]));
      // Host memory, to look at what the host cannot reach.
      WEFT_ASSIGN_OR_RETURN(copy, CpuDevice().Allocate(std::max<size_t>(bytes, 1)));
      WEFT_RETURN_IF_ERROR(device.CopyToHost(stream, data, copy->data(), bytes));
      WEFT_RETURN_IF_ERROR(stream.Synchronize(timeout));
      data = copy->data();
    }
    const int64_t at = FindNonFinite(info.output_dtypes[i], info.output_elements[i], data);
    if (at < 0) continue;
    return absl::OutOfRangeError(
        absl::StrCat("output ", i, " has a NaN or infinity at element ", at,
                     "; this is the first node that made one; try a smaller learning rate, or "
                     "look at its inputs"));
  }
  return absl::OkStatus();
}

}  // namespace weft
