#include "tensor/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct Meaning {
  absl::StatusCode code;
  const char* advice;
};

Meaning MeaningOf(CudaCode code) {
  switch (code) {
    case CudaCode::kMemoryAllocation:
      return {absl::StatusCode::kResourceExhausted,
              "use a smaller batch or more devices, or end what else uses the card"};
    case CudaCode::kEccUncorrectable:
    case CudaCode::kNvlinkUncorrectable:
    case CudaCode::kContained:
    case CudaCode::kExternalDevice:
      return {absl::StatusCode::kUnavailable,
              "the card failed: start the process anew, and look at it with 'nvidia-smi -q'"};
    case CudaCode::kLaunchTimeout:
      return {absl::StatusCode::kUnavailable,
              "the system ends long kernels on this card: use one that drives no display"};
    case CudaCode::kDevicesUnavailable:
      return {absl::StatusCode::kUnavailable,
              "another process holds the card for itself: end it, or set the compute mode with "
              "'nvidia-smi -c 0'"};
    case CudaCode::kSystemNotReady:
      return {absl::StatusCode::kUnavailable,
              "start the fabric manager of the machine, or wait for it"};
    case CudaCode::kIllegalAddress:
    case CudaCode::kAssert:
    case CudaCode::kHardwareStackError:
    case CudaCode::kIllegalInstruction:
    case CudaCode::kMisalignedAddress:
    case CudaCode::kInvalidAddressSpace:
    case CudaCode::kInvalidProgramCounter:
    case CudaCode::kLaunchFailure:
      return {absl::StatusCode::kInternal,
              "a kernel did wrong before, and this process cannot use the card any more; "
              "compute-sanitizer finds the kernel"};
    case CudaCode::kCaptureUnsupported:
    case CudaCode::kCaptureInvalidated:
    case CudaCode::kCaptureUnjoined:
    case CudaCode::kCaptureIsolation:
    case CudaCode::kCapturedEvent:
      return {absl::StatusCode::kFailedPrecondition,
              "something in the recording cannot be recorded; run it without"};
    default:
      return {absl::StatusCode::kInternal, "'graph_runner doctor' shows what CUDA finds"};
  }
}

}  // namespace

bool EndsTheDevice(CudaCode code) {
  const int number = static_cast<int>(code);
  return code == CudaCode::kEccUncorrectable || code == CudaCode::kNvlinkUncorrectable ||
         code == CudaCode::kContained || code == CudaCode::kExternalDevice ||
         code == CudaCode::kIllegalAddress || code == CudaCode::kLaunchTimeout ||
         (number >= static_cast<int>(CudaCode::kAssert) && number <= 719 && number != 711 &&
          number != 712 && number != 713);
}

absl::Status CudaStatus(CudaRuntime& runtime, CudaCode code, std::string_view subject,
                        std::string_view action) {
  if (code == CudaCode::kSuccess) return absl::OkStatus();
  const Meaning meaning = MeaningOf(code);
  return absl::Status(meaning.code,
                      absl::StrCat(absl::string_view(subject.data(), subject.size()), " cannot ",
                                   absl::string_view(action.data(), action.size()), ": CUDA says ",
                                   runtime.ErrorName(code), " (", static_cast<int>(code), "), ",
                                   runtime.ErrorText(code), "; ", meaning.advice));
}

}  // namespace weft
