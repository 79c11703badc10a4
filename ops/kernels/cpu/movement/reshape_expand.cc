// Expand and Tile: copies that read the same elements several times.
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> CopyKernel(const PrepareContext& context,
                                                   std::vector<CopyAxis> axes) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  return MakeKernel([copy = StridedCopy(std::move(axes), width),
                     threads = context.threads()](const KernelContext& run) {
    copy.Run(run.inputs[0], run.outputs[0], threads);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareExpand(const PrepareContext& context) {
  const Shape& input = context.InputShape(0);
  const Shape& output = context.OutputShape(0);
  const auto from_strides = input.Strides();
  const auto to_strides = output.Strides();
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int from = axis - (output.rank() - input.rank());
    const bool repeated = from < 0 || input.dim(from) == 1;
    axes.push_back({output.dim(axis), repeated ? 0 : from_strides[from], to_strides[axis]});
  }
  return CopyKernel(context, std::move(axes));
}

// Each axis of the output is (repeats, size).
absl::StatusOr<std::unique_ptr<Kernel>> PrepareTile(const PrepareContext& context) {
  const Shape& input = context.InputShape(0);
  const Shape& output = context.OutputShape(0);
  const auto from_strides = input.Strides();
  const auto to_strides = output.Strides();
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t size = input.dim(axis);
    axes.push_back({size == 0 ? 0 : output.dim(axis) / size, 0, size * to_strides[axis]});
    axes.push_back({size, from_strides[axis], to_strides[axis]});
  }
  return CopyKernel(context, std::move(axes));
}

// Bytes are moved, whatever they mean: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "Expand", DeviceKind::kCpu, PrepareExpand);
WEFT_REGISTER_REFERENCE_KERNEL("", "Expand", PrepareExpand);
WEFT_REGISTER_KERNEL("", "Tile", DeviceKind::kCpu, PrepareTile);
WEFT_REGISTER_REFERENCE_KERNEL("", "Tile", PrepareTile);

}  // namespace
}  // namespace weft::cpu
