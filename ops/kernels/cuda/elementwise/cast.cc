// Cast and BitCast.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/elementwise/elementwise_launch.h"

namespace weft::cuda {
namespace {

std::unique_ptr<Kernel> MakeCopy(int64_t bytes, const std::string& op) {
  return MakeKernel([=](const KernelContext& run) {
    if (run.inputs[0] == run.outputs[0]) return absl::OkStatus();
    return LaunchStatus(LaunchCopy({QueueOf(run), run.inputs[0], run.outputs[0], bytes, {}}), op);
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCast(const PrepareContext& context) {
  const DType from = context.InputDType(0);
  const DType to = context.OutputDType(0);
  const int64_t count = context.OutputShape(0).num_elements();
  const bool cuts_off = to == DType::kBfloat16 && IsFloatingPoint(from) &&
                        context.attributes().String("round_mode", "") == "down";
  const CastLaunch launch = cuts_off ? FindCutOffCast(from) : FindCast(from, to);
  if (launch == nullptr) {
    return context.Unimplemented(absl::StrCat("no conversion from ", std::string(DTypeName(from)),
                                              " to ", std::string(DTypeName(to)), " on a GPU"));
  }
  if (from == to) return MakeCopy(DTypeBytes(to, count), "Cast");
  return MakeKernel([=](const KernelContext& run) {
    return LaunchStatus(launch({QueueOf(run), run.inputs[0], run.outputs[0], count, from, to}),
                        "Cast");
  });
}
WEFT_REGISTER_KERNEL("", "Cast", DeviceKind::kCuda, PrepareCast);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBitCast(const PrepareContext& context) {
  return MakeCopy(DTypeBytes(context.InputDType(0), context.InputShape(0).num_elements()),
                  "BitCast");
}
WEFT_REGISTER_KERNEL("", "BitCast", DeviceKind::kCuda, PrepareBitCast);

}  // namespace
}  // namespace weft::cuda
