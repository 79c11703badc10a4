#include "executor/program/numerics_check.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// FiniteArguments::kAllFinite, or the first element of the output that is not finite.
absl::StatusOr<int64_t> FirstNonFinite(FiniteArguments search, const MemoryWork& work,
                                       Device& device, Stream& stream) {
  int64_t first = FiniteArguments::kAllFinite;
  std::shared_ptr<Buffer> memory;
  search.first = &first;
  if (!device.info().host_accessible) {
    WEFT_ASSIGN_OR_RETURN(memory, device.Allocate(sizeof(first)));
    search.first = static_cast<int64_t*>(memory->data());
  }
  WEFT_RETURN_IF_ERROR(stream.Enqueue({work.find_non_finite, &search}));
  if (memory != nullptr) {
    WEFT_RETURN_IF_ERROR(device.CopyToHost(stream, memory->data(), &first, sizeof(first)));
  }
  WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  return first;
}

// "output 1", and of which node where several run as one.
std::string OutputName(const InstructionInfo& info, size_t output) {
  const InstructionInfo::Member* maker = nullptr;
  for (const InstructionInfo::Member& member : info.members) {
    if (member.first_output <= output) maker = &member;
  }
  if (maker == nullptr) return absl::StrCat("output ", output);
  return absl::StrCat("output ", output - maker->first_output, " of '", maker->node, "'");
}

}  // namespace

absl::Status CheckOutputsFinite(std::span<void* const> outputs, const InstructionInfo& info,
                                const MemoryWork& work, Device& device, Stream& stream) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr || !IsFloatingPoint(info.output_dtypes[i])) continue;
    WEFT_ASSIGN_OR_RETURN(
        const int64_t first,
        FirstNonFinite({info.output_dtypes[i], info.output_elements[i], outputs[i], nullptr}, work,
                       device, stream));
    if (first == FiniteArguments::kAllFinite) continue;
    return absl::OutOfRangeError(
        absl::StrCat(OutputName(info, i), " has a NaN or infinity at element ", first,
                     "; this is the first node that made one; try a smaller learning rate, or "
                     "look at its inputs"));
  }
  return absl::OkStatus();
}

}  // namespace weft
