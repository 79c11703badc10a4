// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: per tensor, per axis and blocked.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/rules.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/quantized/quantize_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

absl::StatusOr<ScaleGrid> ScaleGridOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  ScaleGrid grid;
  grid.scales = context.InputShape(1).num_elements();
  if (grid.scales == 1) {
    grid.inner = x.num_elements();
    return grid;
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 1), x.rank()));
  grid.outer = x.ProductOf(0, axis);
  grid.size = x.dim(axis);
  grid.inner = x.ProductOf(axis + 1, x.rank());
  grid.block = context.attributes().Int("block_size", 0);
  if (grid.block > 0) {
    grid.blocks = grid.size / grid.block + (grid.size % grid.block != 0 ? 1 : 0);
  }
  const int64_t expected = grid.block > 0 ? grid.outer * grid.blocks * grid.inner : grid.size;
  if (grid.scales != expected) {
    return context.InvalidArgument(
        absl::StrCat("there are ", grid.scales, " scales, expected ", expected, " or 1"));
  }
  return grid;
}

absl::StatusOr<QuantizeCall> QuantizeCallOf(const PrepareContext& context) {
  QuantizeCall call;
  WEFT_ASSIGN_OR_RETURN(call.grid, ScaleGridOf(context));
  call.scale_dtype = context.InputDType(1);
  call.reader = MakeCodeDecoder(context.InputDType(0));
  return call;
}

QuantizeCall QuantizeCallFor(QuantizeCall call, bool has_zeros, const KernelContext& run) {
  call.queue = QueueOf(run);
  call.x = run.inputs[0];
  call.scales = run.inputs[1];
  call.zeros = has_zeros ? run.inputs[2] : nullptr;
  call.y = run.outputs[0];
  return call;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDequantize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const QuantizeCall call, QuantizeCallOf(context));
  const bool has_zeros = context.HasInput(2);
  const DType to = context.OutputDType(0);
  return PrepareByElement(context, to, Elements<float, Float16, Bfloat16>(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel([=](const KernelContext& run) {
                              return LaunchStatus(
                                  LaunchDequantize(QuantizeCallFor(call, has_zeros, run), to),
                                  "DequantizeLinear");
                            });
                          });
}
WEFT_REGISTER_KERNEL("", "DequantizeLinear", DeviceKind::kCuda, PrepareDequantize);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareQuantize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(QuantizeCall call, QuantizeCallOf(context));
  const DType to = context.OutputDType(0);
  if (to == DType::kInt32) return context.Unimplemented("no quantization to int32");
  const int64_t precision = context.attributes().Int("precision", 0);
  call.precision = precision != 0 ? static_cast<DType>(precision) : context.InputDType(1);
  call.zero_reader = MakeCodeDecoder(to);
  call.writer = MakeCodeEncoder(to, context.attributes().Int("saturate", 1) != 0);
  const bool has_zeros = context.HasInput(2);
  return MakeKernel([=](const KernelContext& run) {
    return LaunchStatus(LaunchQuantize(QuantizeCallFor(call, has_zeros, run)), "QuantizeLinear");
  });
}
WEFT_REGISTER_KERNEL("", "QuantizeLinear", DeviceKind::kCuda, PrepareQuantize);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDynamicQuantize(const PrepareContext& context) {
  const int64_t count = context.InputShape(0).num_elements();
  return MakeKernel(
      [=](const KernelContext& run) {
        const DynamicQuantizeCall call = {QueueOf(run),
                                          In<float>(run, 0),
                                          Out<uint8_t>(run, 0),
                                          Out<float>(run, 1),
                                          Out<uint8_t>(run, 2),
                                          static_cast<uint32_t*>(run.workspace),
                                          count};
        return LaunchStatus(LaunchDynamicQuantize(call), "DynamicQuantizeLinear");
      },
      2 * sizeof(uint32_t));
}
WEFT_REGISTER_KERNEL("", "DynamicQuantizeLinear", DeviceKind::kCuda, PrepareDynamicQuantize);

}  // namespace
}  // namespace weft::cuda
