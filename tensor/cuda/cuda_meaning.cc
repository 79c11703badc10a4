#include "tensor/cuda/cuda_meaning.h"

namespace weft {
namespace {

using absl::StatusCode;

constexpr std::string_view kNoRoom =
    "use a smaller batch or more devices, or end what else uses the card";
constexpr std::string_view kFailedCard =
    "the card failed: start the process anew, and look at it with 'nvidia-smi -q'";
constexpr std::string_view kFailedKernel =
    "a kernel did wrong before, and this process cannot use the card any more; compute-sanitizer "
    "finds the kernel";
constexpr std::string_view kNotRecordable =
    "something in the recording cannot be recorded; run it without";
constexpr std::string_view kOldDriver =
    "the driver is older than the CUDA toolkit of this build ('graph_runner doctor' has both "
    "versions): install a newer driver, or build with an older toolkit";
constexpr std::string_view kNoCode =
    "this build has no code that the card can run ('graph_runner doctor' has the card's compute "
    "capability): build with a CUDA toolkit that knows the card, or use another card";
constexpr std::string_view kNoCompiler =
    "the card is newer than this build, and the driver's compiler for it is missing: install the "
    "whole driver (libnvidia-ptxjitcompiler.so.1), and in a container allow the capability "
    "'compute' (NVIDIA_DRIVER_CAPABILITIES)";
constexpr std::string_view kNoCompiling =
    "the card is newer than this build, and the environment forbids to compile for it: unset "
    "CUDA_DISABLE_PTX_JIT, or build with a CUDA toolkit that knows the card";
constexpr std::string_view kBadCode =
    "the code in this program is damaged, or was forced into another form: unset "
    "CUDA_FORCE_PTX_JIT, and empty the driver's cache of kernels (CUDA_CACHE_PATH, else "
    "~/.nv/ComputeCache), or install the program anew";

struct Row {
  int number;
  CudaMeaning meaning;
};

// Numbers and names of cudaError_t of CUDA 13.0.
constexpr Row kRows[] = {
    {2, {StatusCode::kResourceExhausted, "cudaErrorMemoryAllocation", kNoRoom}},
    {35, {StatusCode::kFailedPrecondition, "cudaErrorInsufficientDriver", kOldDriver}},
    {36, {StatusCode::kFailedPrecondition, "cudaErrorCallRequiresNewerDriver", kOldDriver}},
    {46,
     {StatusCode::kUnavailable, "cudaErrorDevicesUnavailable",
      "another process holds the card for itself: end it, or set the compute mode with "
      "'nvidia-smi -c 0'"}},
    {98, {StatusCode::kFailedPrecondition, "cudaErrorInvalidDeviceFunction", kNoCode}},
    {200, {StatusCode::kFailedPrecondition, "cudaErrorInvalidKernelImage", kBadCode}},
    {209, {StatusCode::kFailedPrecondition, "cudaErrorNoKernelImageForDevice", kNoCode}},
    {214, {StatusCode::kUnavailable, "cudaErrorECCUncorrectable", kFailedCard}},
    {218, {StatusCode::kFailedPrecondition, "cudaErrorInvalidPtx", kBadCode}},
    {220, {StatusCode::kUnavailable, "cudaErrorNvlinkUncorrectable", kFailedCard}},
    {221, {StatusCode::kFailedPrecondition, "cudaErrorJitCompilerNotFound", kNoCompiler}},
    {222, {StatusCode::kFailedPrecondition, "cudaErrorUnsupportedPtxVersion", kOldDriver}},
    {223, {StatusCode::kFailedPrecondition, "cudaErrorJitCompilationDisabled", kNoCompiling}},
    {226, {StatusCode::kUnavailable, "cudaErrorContained", kFailedCard}},
    {700, {StatusCode::kInternal, "cudaErrorIllegalAddress", kFailedKernel}},
    {702,
     {StatusCode::kUnavailable, "cudaErrorLaunchTimeout",
      "the system ends long kernels on this card: use one that drives no display"}},
    {710, {StatusCode::kInternal, "cudaErrorAssert", kFailedKernel}},
    {714, {StatusCode::kInternal, "cudaErrorHardwareStackError", kFailedKernel}},
    {715, {StatusCode::kInternal, "cudaErrorIllegalInstruction", kFailedKernel}},
    {716, {StatusCode::kInternal, "cudaErrorMisalignedAddress", kFailedKernel}},
    {717, {StatusCode::kInternal, "cudaErrorInvalidAddressSpace", kFailedKernel}},
    {718, {StatusCode::kInternal, "cudaErrorInvalidPc", kFailedKernel}},
    {719, {StatusCode::kInternal, "cudaErrorLaunchFailure", kFailedKernel}},
    {802,
     {StatusCode::kUnavailable, "cudaErrorSystemNotReady",
      "start the fabric manager of the machine, or wait for it"}},
    {803,
     {StatusCode::kFailedPrecondition, "cudaErrorSystemDriverMismatch",
      "the driver's module in the kernel and its libraries are of different versions: start the "
      "machine anew, and a container with the machine's libraries alone"}},
    {804,
     {StatusCode::kFailedPrecondition, "cudaErrorCompatNotSupportedOnDevice",
      "the libraries for forward compatibility (cuda-compat) do not serve this card: remove them "
      "from LD_LIBRARY_PATH, and install a newer driver"}},
    {900, {StatusCode::kFailedPrecondition, "cudaErrorStreamCaptureUnsupported", kNotRecordable}},
    {901, {StatusCode::kFailedPrecondition, "cudaErrorStreamCaptureInvalidated", kNotRecordable}},
    {904, {StatusCode::kFailedPrecondition, "cudaErrorStreamCaptureUnjoined", kNotRecordable}},
    {905, {StatusCode::kFailedPrecondition, "cudaErrorStreamCaptureIsolation", kNotRecordable}},
    {907, {StatusCode::kFailedPrecondition, "cudaErrorCapturedEvent", kNotRecordable}},
    {911, {StatusCode::kUnavailable, "cudaErrorExternalDevice", kFailedCard}},
};

}  // namespace

CudaMeaning MeaningOf(CudaCode code) {
  for (const Row& row : kRows) {
    if (row.number == static_cast<int>(code)) return row.meaning;
  }
  return {StatusCode::kInternal, "", "'graph_runner doctor' shows what CUDA finds"};
}

}  // namespace weft
