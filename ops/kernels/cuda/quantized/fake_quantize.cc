// FakeQuantizeWeight, FakeQuantize, FakeQuantizeGrad, RangeOfBatch, UpdateRange.
#include "ops/defs/rules/rules.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/quantized/fake_quantize_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

DType CodesOf(const PrepareContext& context) {
  return static_cast<DType>(context.attributes().Int("to", 0));
}

absl::Status CheckIsFloat32(const PrepareContext& context) {
  if (context.InputDType(0) == DType::kFloat32) return absl::OkStatus();
  return context.Unimplemented("only float32 is quantized");
}

absl::StatusOr<ScaleGrid> WeightGridOf(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  ScaleGrid grid;
  if (!context.attributes().Has("axis")) {
    grid.inner = shape.num_elements();
    return grid;
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), shape.rank()));
  grid.outer = shape.ProductOf(0, axis);
  grid.size = shape.dim(axis);
  grid.inner = shape.ProductOf(axis + 1, shape.rank());
  grid.block = context.attributes().Int("block_size", 0);
  if (grid.block > 0) {
    grid.blocks = grid.size / grid.block + (grid.size % grid.block != 0 ? 1 : 0);
  }
  grid.scales = grid.block > 0 ? grid.outer * grid.blocks * grid.inner : grid.size;
  return grid;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantizeWeight(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  FakeWeightCall call;
  WEFT_ASSIGN_OR_RETURN(call.grid, WeightGridOf(context));
  const DType codes = CodesOf(context);
  call.is_float8 = codes == DType::kFloat8E4M3Fn;
  call.limit = codes == DType::kInt8 ? 127.0f : codes == DType::kInt4 ? 7.0f : 448.0f;
  const bool wants_scale = context.HasOutput(1);
  return MakeKernel(
      [=](const KernelContext& run) {
        FakeWeightCall now = call;
        now.queue = QueueOf(run);
        now.w = In<float>(run, 0);
        now.y = Out<float>(run, 0);
        now.scales = wants_scale ? Out<float>(run, 1) : static_cast<float*>(run.workspace);
        return LaunchStatus(LaunchFakeWeight(now), "FakeQuantizeWeight");
      },
      wants_scale ? 0 : static_cast<size_t>(call.grid.scales) * sizeof(float));
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantizeWeight", DeviceKind::kCuda,
                     PrepareFakeQuantizeWeight);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantize(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  FakeQuantizeCall call;
  call.count = context.InputShape(0).num_elements();
  call.is_float8 = CodesOf(context) == DType::kFloat8E4M3Fn;
  const bool wants_scale = context.HasOutput(1);
  const bool wants_zero = context.HasOutput(2);
  return MakeKernel([=](const KernelContext& run) {
    FakeQuantizeCall now = call;
    now.queue = QueueOf(run);
    now.x = In<float>(run, 0);
    now.range = In<float>(run, 1);
    now.y = Out<float>(run, 0);
    now.scale = wants_scale ? Out<float>(run, 1) : nullptr;
    now.zero_point = wants_zero ? Out<float>(run, 2) : nullptr;
    return LaunchStatus(LaunchFakeQuantize(now), "FakeQuantize");
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantize", DeviceKind::kCuda, PrepareFakeQuantize);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantizeGrad(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  FakeQuantizeCall call;
  call.count = context.InputShape(0).num_elements();
  call.is_float8 = CodesOf(context) == DType::kFloat8E4M3Fn;
  return MakeKernel([=](const KernelContext& run) {
    FakeQuantizeCall now = call;
    now.queue = QueueOf(run);
    now.dy = In<float>(run, 0);
    now.x = In<float>(run, 1);
    now.range = In<float>(run, 2);
    now.y = Out<float>(run, 0);
    return LaunchStatus(LaunchFakeQuantizeGrad(now), "FakeQuantizeGrad");
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantizeGrad", DeviceKind::kCuda, PrepareFakeQuantizeGrad);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRangeOfBatch(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  BatchRangeCall call;
  call.count = context.InputShape(0).num_elements();
  call.rows = context.OutputShape(0).dim(0);
  return MakeKernel(
      [=](const KernelContext& run) {
        BatchRangeCall now = call;
        now.queue = QueueOf(run);
        now.x = In<float>(run, 0);
        now.y = Out<float>(run, 0);
        now.range = static_cast<uint32_t*>(run.workspace);
        // Micro-batches [first, last) share the row.
        const int64_t all = run.micro_batches;
        const int64_t rows = call.rows;
        now.row = all <= rows ? run.micro_batch : run.micro_batch * rows / all;
        const int64_t first = all <= rows ? now.row : (now.row * all + rows - 1) / rows;
        const int64_t last = all <= rows ? now.row + 1 : ((now.row + 1) * all + rows - 1) / rows;
        now.sharing = static_cast<float>(last - first);
        return LaunchStatus(LaunchBatchRange(now), "RangeOfBatch");
      },
      2 * sizeof(uint32_t));
}
WEFT_REGISTER_KERNEL(kWeftDomain, "RangeOfBatch", DeviceKind::kCuda, PrepareRangeOfBatch);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareUpdateRange(const PrepareContext& context) {
  const float decay = context.attributes().Float("decay", 0.0f);
  const int64_t rows = context.InputShape(1).dim(0);
  return PrepareByElement(
      context, context.InputDType(0), Elements<float>(),
      [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchUpdateRange(QueueOf(run), In<float>(run, 0), In<float>(run, 1),
                                                Out<float>(run, 0), rows, decay),
                              "UpdateRange");
        });
      });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "UpdateRange", DeviceKind::kCuda, PrepareUpdateRange);

}  // namespace
}  // namespace weft::cuda
