// What moves elements between strides: Concat, Split, Slice and its gradient, Transpose, Expand,
// Tile, DepthToSpace, SpaceToDepth.
#include <utility>
#include <vector>

#include "ops/defs/movement/copy_geometry.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

std::unique_ptr<Kernel> CopyInput(const PrepareContext& context, StridedCopy copy) {
  return MakeKernel([copy, op = context.node().op](const KernelContext& run) {
    return LaunchStatus(copy.Run(QueueOf(run), run.inputs[0], run.outputs[0]), op);
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> CopyKernel(const PrepareContext& context,
                                                   std::vector<CopyAxis> axes,
                                                   int64_t from_offset = 0) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy,
                        StridedCopy::Make(context, std::move(axes), width, from_offset));
  return CopyInput(context, copy);
}

// ---- Concat, Split

absl::StatusOr<StridedCopy> CopyOf(const PrepareContext& context, const CopyGeometry& part,
                                   int width) {
  return StridedCopy::Make(context, part.axes, width, part.from_offset, part.to_offset);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.OutputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<CopyGeometry> parts, ConcatGeometry(context));
  std::vector<StridedCopy> copies(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(copies[i], CopyOf(context, parts[i], width));
  }
  return MakeKernel([copies = std::move(copies)](const KernelContext& run) {
    for (size_t i = 0; i < copies.size(); ++i) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(copies[i].Run(QueueOf(run), run.inputs[i], run.outputs[0]), "Concat"));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSplit(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<CopyGeometry> parts, SplitGeometry(context));
  std::vector<StridedCopy> copies(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!context.HasOutput(static_cast<int>(i))) continue;
    WEFT_ASSIGN_OR_RETURN(copies[i], CopyOf(context, parts[i], width));
  }
  return MakeKernel([copies = std::move(copies)](const KernelContext& run) {
    for (size_t i = 0; i < copies.size(); ++i) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(copies[i].Run(QueueOf(run), run.inputs[0], run.outputs[i]), "Split"));
    }
    return absl::OkStatus();
  });
}

// ---- Slice, SliceGrad

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(CopyGeometry slice,
                        SliceGeometry(context, 1, context.InputShape(0), context.OutputShape(0)));
  return CopyKernel(context, std::move(slice.axes), slice.from_offset);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSliceGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  const Shape& whole = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(CopyGeometry slice,
                        SliceGeometry(context, 2, whole, context.InputShape(0)));
  for (CopyAxis& axis : slice.axes) std::swap(axis.from_stride, axis.to_stride);
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy,
                        StridedCopy::Make(context, std::move(slice.axes), width,
                                          /*from_offset=*/0, slice.from_offset));
  const int64_t bytes = whole.num_elements() * width;
  // All is overwritten when the slice was the whole tensor.
  const int64_t cleared = copy.bytes() == bytes ? 0 : bytes;
  return MakeKernel([copy, cleared](const KernelContext& run) {
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchClear(QueueOf(run), run.outputs[0], cleared), "SliceGrad"));
    return LaunchStatus(copy.Run(QueueOf(run), run.inputs[0], run.outputs[0]), "SliceGrad");
  });
}

// ---- Transpose, Expand, Tile

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(const PrepareContext& context) {
  return CopyKernel(context, TransposeAxes(context));
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareExpand(const PrepareContext& context) {
  return CopyKernel(context, ExpandAxes(context));
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareTile(const PrepareContext& context) {
  return CopyKernel(context, TileAxes(context));
}

// ---- DepthToSpace, SpaceToDepth

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDepthToSpace(const PrepareContext& context) {
  return CopyKernel(context, DepthToSpaceAxes(context));
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSpaceToDepth(const PrepareContext& context) {
  return CopyKernel(context, SpaceToDepthAxes(context));
}

WEFT_REGISTER_KERNEL("", "Concat", DeviceKind::kCuda, PrepareConcat);
WEFT_REGISTER_KERNEL("", "Split", DeviceKind::kCuda, PrepareSplit);
WEFT_REGISTER_KERNEL("", "Slice", DeviceKind::kCuda, PrepareSlice);
WEFT_REGISTER_KERNEL("ai.weft", "SliceGrad", DeviceKind::kCuda, PrepareSliceGrad);
WEFT_REGISTER_KERNEL("", "Transpose", DeviceKind::kCuda, PrepareTranspose);
WEFT_REGISTER_KERNEL("", "Expand", DeviceKind::kCuda, PrepareExpand);
WEFT_REGISTER_KERNEL("", "Tile", DeviceKind::kCuda, PrepareTile);
WEFT_REGISTER_KERNEL("", "DepthToSpace", DeviceKind::kCuda, PrepareDepthToSpace);
WEFT_REGISTER_KERNEL("", "SpaceToDepth", DeviceKind::kCuda, PrepareSpaceToDepth);

}  // namespace
}  // namespace weft::cuda
