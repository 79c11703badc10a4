#include "tensor/cuda/cuda_setup.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_status.h"

namespace weft {
namespace {

constexpr int kComputeModeProhibited = 2;
constexpr int kComputeModeExclusiveProcess = 3;

// The first driver for Linux that has a major version of CUDA (NVIDIA's release notes of CUDA,
// table of minor version compatibility).
std::string DriverOf(int cuda_version) {
  const int major = cuda_version / 1000;
  return major == 13 ? " (580 or later)" : major == 12 ? " (525 or later)" : "";
}

absl::Status OldDriver(const std::string& device, int driver, int runtime) {
  const int needed = runtime / 1000 * 1000;
  return absl::FailedPreconditionError(absl::StrCat(
      device, " cannot be used: the NVIDIA driver of this machine is made for CUDA ",
      CudaVersionText(driver), ", and this build (CUDA ", CudaVersionText(runtime), ") needs ",
      CudaVersionText(needed), "; install a newer driver", DriverOf(needed)));
}

// OK where the driver can compile this build's PTX for the card, or need not (CUDA Compatibility,
// "Minor Version Compatibility": what the driver compiles wants a driver as new as the toolkit).
absl::Status CheckPtx(CudaRuntime& runtime, const CudaCard& card,
                      const CudaProperties& properties) {
  if (properties.major <= kNewestCudaMajor) return absl::OkStatus();
  int driver = 0;
  int built_with = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, runtime.RuntimeVersion(&built_with), card.device,
                                  "learn the version of CUDA's runtime"));
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, runtime.DriverVersion(&driver), card.device,
                                  "learn the version of the driver"));
  if (driver / 10 >= built_with / 10) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      card.device, " (", CudaCardText(properties), ") is newer than the machine code of this ",
      "build, which ends at ", kNewestCudaMajor, ".x, and the driver, made for CUDA ",
      CudaVersionText(driver), ", cannot compile its PTX of CUDA ", CudaVersionText(built_with),
      "; install a driver for CUDA ", CudaVersionText(built_with),
      " or later, or build with a toolkit of at most CUDA ", CudaVersionText(driver)));
}

std::string VisibleText(const CudaCard& card) {
  if (!card.visible_devices.has_value()) return "CUDA_VISIBLE_DEVICES is not set";
  return absl::StrCat("CUDA_VISIBLE_DEVICES is '", *card.visible_devices, "'");
}

absl::Status NoCard(const CudaCard& card) {
  return absl::FailedPreconditionError(absl::StrCat(
      card.device, " is not there: the driver shows no card to this process (", VisibleText(card),
      "); see 'nvidia-smi -L', and in a container give it the cards"));
}

absl::Status OutOfRange(const CudaCard& card, int count) {
  return absl::InvalidArgumentError(absl::StrCat(
      card.device, " is not there: this process sees ", count, count == 1 ? " card" : " cards",
      ", cuda:0", count > 1 ? absl::StrCat(" to cuda:", count - 1) : "", " (", VisibleText(card),
      "); name one of them"));
}

// A card that nobody, or somebody else alone, may use.
absl::Status Busy(CudaRuntime& runtime, const CudaCard& card, const CudaProperties& properties,
                  CudaCode code) {
  if (properties.compute_mode == kComputeModeExclusiveProcess &&
      code == CudaCode::kDevicesUnavailable) {
    return absl::UnavailableError(absl::StrCat(
        card.device, " (", properties.name,
        ") is in the compute mode 'exclusive process', and another process has it; end that "
        "process, or allow several with 'nvidia-smi -i ",
        card.number, " -c 0'"));
  }
  return CudaStatus(runtime, code, absl::StrCat(card.device, " (", properties.name, ")"),
                    "be set up");
}

absl::Status NoRoom(CudaRuntime& runtime, const CudaCard& card, const CudaProperties& properties) {
  size_t free_bytes = 0;
  size_t total_bytes = properties.total_bytes;
  const bool known = runtime.MemoryInfo(&free_bytes, &total_bytes) == CudaCode::kSuccess;
  return absl::ResourceExhaustedError(absl::StrCat(
      card.device, " (", properties.name, ") has no room for CUDA's own data, some hundred MiB: ",
      known ? absl::StrCat(free_bytes, " of ") : "", total_bytes, " bytes are ",
      known ? "free" : "its memory", "; end what uses the card (see 'nvidia-smi')"));
}

}  // namespace

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string CudaCardText(const CudaProperties& card) {
  return absl::StrCat(card.name, ", compute capability ", card.major, ".", card.minor);
}

absl::Status CheckCudaDriver(CudaRuntime& runtime, const std::string& device) {
  int driver = 0;
  int built_with = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, runtime.RuntimeVersion(&built_with), device,
                                  "learn the version of CUDA's runtime"));
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, runtime.DriverVersion(&driver), device,
                                  "learn the version of the driver"));
  if (driver == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        device, " cannot be used: there is no NVIDIA driver on this machine, its library ",
        "libcuda.so.1 was not found; install the driver", DriverOf(built_with),
        ", and start a container with the machine's one (--gpus)"));
  }
  if (driver / 1000 < built_with / 1000) return OldDriver(device, driver, built_with);
  return absl::OkStatus();
}

absl::StatusOr<int> CountCudaCards(CudaRuntime& runtime, const CudaCard& card) {
  WEFT_RETURN_IF_ERROR(CheckCudaDriver(runtime, card.device));
  int count = 0;
  const CudaCode code = runtime.DeviceCount(&count);
  if (code == CudaCode::kInsufficientDriver) {
    int driver = 0;
    int built_with = 0;
    runtime.DriverVersion(&driver);
    runtime.RuntimeVersion(&built_with);
    return OldDriver(card.device, driver, built_with);
  }
  if (code == CudaCode::kNoDevice) return NoCard(card);
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, code, card.device, "count the cards"));
  if (count == 0) return NoCard(card);
  return count;
}

absl::StatusOr<CudaProperties> CheckCudaCard(CudaRuntime& runtime, const CudaCard& card) {
  WEFT_ASSIGN_OR_RETURN(const int count, CountCudaCards(runtime, card));
  if (card.number < 0 || card.number >= count) return OutOfRange(card, count);
  CudaProperties properties;
  WEFT_RETURN_IF_ERROR(CudaStatus(runtime, runtime.Properties(card.number, &properties),
                                  card.device, "say what it is"));
  const bool too_old =
      properties.major < kOldestCudaMajor ||
      (properties.major == kOldestCudaMajor && properties.minor < kOldestCudaMinor);
  if (too_old) {
    return absl::UnimplementedError(
        absl::StrCat(card.device, " (", properties.name, ") has compute capability ",
                     properties.major, ".", properties.minor, ", and this build has kernels for ",
                     kOldestCudaMajor, ".", kOldestCudaMinor, " and later; use a newer card"));
  }
  if (properties.compute_mode == kComputeModeProhibited) {
    return absl::FailedPreconditionError(
        absl::StrCat(card.device, " (", properties.name,
                     ") is in the compute mode 'prohibited'; allow it with 'nvidia-smi -i ",
                     card.number, " -c 0'"));
  }
  WEFT_RETURN_IF_ERROR(CheckPtx(runtime, card, properties));
  return properties;
}

absl::StatusOr<CudaProperties> SetUpCudaCard(CudaRuntime& runtime, const CudaCard& card) {
  WEFT_ASSIGN_OR_RETURN(const CudaProperties properties, CheckCudaCard(runtime, card));
  const CudaCode code = runtime.SetDevice(card.number);
  if (code == CudaCode::kMemoryAllocation) return NoRoom(runtime, card, properties);
  if (code != CudaCode::kSuccess) return Busy(runtime, card, properties, code);
  return properties;
}

}  // namespace weft
