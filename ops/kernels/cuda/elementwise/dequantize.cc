// DequantizeBlocks.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/elementwise/elementwise_launch.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDequantizeBlocks(const PrepareContext& context) {
  const DType dtype = context.InputDType(1);
  const DequantizeBlocksLaunch launch = FindDequantizeBlocks(dtype);
  if (launch == nullptr) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  const Attributes& attributes = context.attributes();
  DequantizeBlocksCall call;
  call.rows = attributes.Int("N", 0);
  call.columns = attributes.Int("K", 0);
  call.block = attributes.Int("block_size", 32);
  call.bits = static_cast<int>(attributes.Int("bits", 4));
  const bool has_zeros = context.HasInput(2);
  const bool has_groups = context.HasInput(3);
  call.packed_zeros = has_zeros && context.InputDType(2) == DType::kUint8;
  if (has_zeros && !call.packed_zeros && context.InputDType(2) != dtype) {
    return context.Unimplemented("zero points are neither uint8 nor of the scales' type");
  }
  const int64_t blocks = (call.columns + call.block - 1) / call.block;
  const std::string source = absl::StrCat("DequantizeBlocks '", context.node().name, "': g_idx");
  return MakeKernel([=](const KernelContext& run) {
    DequantizeBlocksCall now = call;
    now.queue = QueueOf(run);
    now.q = run.inputs[0];
    now.scales = run.inputs[1];
    now.zeros = has_zeros ? run.inputs[2] : nullptr;
    now.groups = has_groups ? run.inputs[3] : nullptr;
    now.y = run.outputs[0];
    now.report = {run.stream->fault(), source.c_str(), 0, blocks};
    return LaunchStatus(launch(now), "DequantizeBlocks");
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "DequantizeBlocks", DeviceKind::kCuda, PrepareDequantizeBlocks);

}  // namespace
}  // namespace weft::cuda
