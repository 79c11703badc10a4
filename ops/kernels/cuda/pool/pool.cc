// MaxPool, AveragePool, their gradients, LpPool and the pools over whole images.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/pool/pool_geometry.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Operands have the type of output 0.
absl::Status CheckOneType(const PrepareContext& context, int inputs) {
  for (int i = 0; i < inputs; ++i) {
    if (context.InputDType(i) == context.OutputDType(0)) continue;
    return context.Unimplemented("operands of different types on CUDA devices");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxPool(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool, PoolOf(context, x, context.OutputShape(0)));
  const OperandSlice& slice = context.InputSlice(0);
  PoolIndices indices;
  indices.first_sample = slice.offset[0];
  indices.first_channel = slice.offset[1];
  indices.channels = std::max<int64_t>(x.dim(1), 1);
  indices.all_channels = slice.global_shape.dim(1);
  indices.by_column = context.attributes().Int("storage_order", 0) != 0;
  const bool has_indices = context.HasOutput(1);
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, Elements<float, double, Float16, Bfloat16, int8_t, uint8_t>(),
      [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) mutable {
          indices.to = has_indices ? Out<int64_t>(run, 1) : nullptr;
          return LaunchStatus(
              LaunchMaxPool(QueueOf(run), dtype, pool, run.inputs[0], run.outputs[0], indices),
              "MaxPool");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxPoolGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool,
                        PoolOf(context, context.InputShape(0), context.InputShape(1)));
  if (!(context.InputShape(2) == context.InputShape(1))) {
    return context.InvalidArgument("Y and dY must have the same shape");
  }
  WEFT_RETURN_IF_ERROR(CheckOneType(context, 3));
  const DType dtype = context.InputDType(0);
  const size_t workspace =
      sizeof(int32_t) * static_cast<size_t>(context.InputShape(1).num_elements());
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel(
            [=](const KernelContext& run) {
              return LaunchStatus(LaunchMaxPoolGrad(QueueOf(run), dtype, pool, run.inputs[0],
                                                    run.inputs[1], run.inputs[2], run.outputs[0],
                                                    static_cast<int32_t*>(run.workspace)),
                                  "MaxPoolGrad");
            },
            workspace);
      });
}

// ---- AveragePool, LpPool

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAveragePool(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool,
                        PoolOf(context, context.InputShape(0), context.OutputShape(0)));
  const bool count_padding = context.attributes().Int("count_include_pad", 0) != 0;
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchAveragePool(QueueOf(run), dtype, pool, count_padding,
                                                run.inputs[0], run.outputs[0]),
                              "AveragePool");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAveragePoolGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool,
                        PoolOf(context, context.OutputShape(0), context.InputShape(0)));
  WEFT_RETURN_IF_ERROR(CheckOneType(context, 1));
  const bool count_padding = context.attributes().Int("count_include_pad", 0) != 0;
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchAveragePoolGrad(QueueOf(run), dtype, pool, count_padding,
                                                    run.inputs[0], run.outputs[0]),
                              "AveragePoolGrad");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLpPool(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool,
                        PoolOf(context, context.InputShape(0), context.OutputShape(0)));
  const int64_t p = context.attributes().Int("p", 2);
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(
              LaunchLpPool(QueueOf(run), dtype, pool, p, run.inputs[0], run.outputs[0]), "LpPool");
        });
      });
}

// ---- Over the whole image.

template <GlobalPool kPool>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobal(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const int64_t planes = x.ProductOf(0, 2);
  const int64_t size = x.ProductOf(2, x.rank());
  const int64_t p = context.attributes().Int("p", 2);
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=, op = context.node().op](const KernelContext& run) {
          return LaunchStatus(LaunchGlobalPool(QueueOf(run), kPool, dtype, planes, size, p,
                                               run.inputs[0], run.outputs[0]),
                              op);
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalAverageGrad(const PrepareContext& context) {
  const Shape& x = context.OutputShape(0);
  const Shape& dy = context.InputShape(0);
  if (dy.num_elements() != x.ProductOf(0, 2)) {
    return context.InvalidArgument(absl::StrCat(
        "dY of shape ", dy.ToString(), " is not the average over the images of ", x.ToString()));
  }
  WEFT_RETURN_IF_ERROR(CheckOneType(context, 1));
  const int64_t planes = x.ProductOf(0, 2);
  const int64_t size = x.ProductOf(2, x.rank());
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchGlobalAverageGrad(QueueOf(run), dtype, planes, size,
                                                      run.inputs[0], run.outputs[0]),
                              "GlobalAveragePoolGrad");
        });
      });
}

WEFT_REGISTER_KERNEL("", "MaxPool", DeviceKind::kCuda, PrepareMaxPool);
WEFT_REGISTER_KERNEL("ai.weft", "MaxPoolGrad", DeviceKind::kCuda, PrepareMaxPoolGrad);
WEFT_REGISTER_KERNEL("", "AveragePool", DeviceKind::kCuda, PrepareAveragePool);
WEFT_REGISTER_KERNEL("ai.weft", "AveragePoolGrad", DeviceKind::kCuda, PrepareAveragePoolGrad);
WEFT_REGISTER_KERNEL("", "LpPool", DeviceKind::kCuda, PrepareLpPool);
WEFT_REGISTER_KERNEL("", "GlobalAveragePool", DeviceKind::kCuda,
                     PrepareGlobal<GlobalPool::kAverage>);
WEFT_REGISTER_KERNEL("", "GlobalMaxPool", DeviceKind::kCuda, PrepareGlobal<GlobalPool::kMax>);
WEFT_REGISTER_KERNEL("", "GlobalLpPool", DeviceKind::kCuda, PrepareGlobal<GlobalPool::kLp>);
WEFT_REGISTER_KERNEL("ai.weft", "GlobalAveragePoolGrad", DeviceKind::kCuda,
                     PrepareGlobalAverageGrad);

}  // namespace
}  // namespace weft::cuda
