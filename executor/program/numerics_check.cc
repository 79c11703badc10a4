#include "executor/program/numerics_check.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What one look at an output uses, on the device and on the host.
struct FiniteSearch {
  FiniteArguments arguments;
  int64_t first = FiniteArguments::kAllFinite;
  std::shared_ptr<Buffer> memory;  // null where the host reaches the device's

  absl::Status Run(const MemoryWork& work, Device& device, Stream& stream) {
    arguments.first = &first;
    if (!device.info().host_accessible) {
      WEFT_ASSIGN_OR_RETURN(memory, device.Allocate(sizeof(first)));
      arguments.first = static_cast<int64_t*>(memory->data());
    }
    WEFT_RETURN_IF_ERROR(stream.Enqueue({work.find_non_finite, &arguments}));
    if (memory != nullptr) {
      WEFT_RETURN_IF_ERROR(device.CopyToHost(stream, memory->data(), &first, sizeof(first)));
    }
    return stream.Synchronize(kDeviceTimeout);
  }
};

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
                                const MemoryWork& work, Device& device, Stream& stream,
                                std::vector<std::shared_ptr<const void>>& held) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr || !IsFloatingPoint(info.output_dtypes[i])) continue;
    const auto search = std::make_shared<FiniteSearch>();
    search->arguments = {info.output_dtypes[i], info.output_elements[i], outputs[i], nullptr};
    if (const absl::Status status = search->Run(work, device, stream); !status.ok()) {
      held.push_back(search);
      return status;
    }
    const int64_t first = search->first;
    if (first == FiniteArguments::kAllFinite) continue;
    return absl::OutOfRangeError(
        absl::StrCat(OutputName(info, i), " has a NaN or infinity at element ", first,
                     "; this is the first node that made one; try a smaller learning rate, or "
                     "look at its inputs"));
  }
  return absl::OkStatus();
}

}  // namespace weft
