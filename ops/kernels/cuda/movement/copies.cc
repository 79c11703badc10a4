// What moves elements between strides: Concat, Split, Slice and its gradient, Transpose, Expand,
// Tile, DepthToSpace, SpaceToDepth.
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/movement/slice_range.h"
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

// A tensor that is cut along one axis: `outer` rows of `whole` times `inner` elements.
struct CutShape {
  int axis = 0;
  int64_t outer = 1;
  int64_t whole = 0;
  int64_t inner = 1;
  int width = 1;
};

absl::StatusOr<CutShape> CutShapeOf(const PrepareContext& context, const Shape& whole,
                                    DType dtype) {
  CutShape cut;
  WEFT_ASSIGN_OR_RETURN(cut.width, ElementBytes(context, dtype));
  WEFT_ASSIGN_OR_RETURN(cut.axis, NormalizeAxis(context.attributes().Int("axis", 0), whole.rank()));
  cut.outer = whole.ProductOf(0, cut.axis);
  cut.whole = whole.dim(cut.axis);
  cut.inner = whole.ProductOf(cut.axis + 1, whole.rank());
  return cut;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const CutShape cut,
                        CutShapeOf(context, context.OutputShape(0), context.OutputDType(0)));
  std::vector<StridedCopy> copies;
  int64_t first = 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const int64_t part = context.InputShape(i).dim(cut.axis);
    WEFT_ASSIGN_OR_RETURN(
        copies.emplace_back(),
        StridedCopy::Make(
            context,
            {{cut.outer, part * cut.inner, cut.whole * cut.inner}, {part * cut.inner, 1, 1}},
            cut.width, /*from_offset=*/0, /*to_offset=*/first * cut.inner));
    first += part;
  }
  return MakeKernel([copies = std::move(copies)](const KernelContext& run) {
    for (size_t i = 0; i < copies.size(); ++i) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(copies[i].Run(QueueOf(run), run.inputs[i], run.outputs[0]), "Concat"));
    }
    return absl::OkStatus();
  });
}

// The size of each part, in order, also of those that nobody wants.
absl::StatusOr<std::vector<int64_t>> SplitSizes(const PrepareContext& context, int64_t whole) {
  if (context.HasInput(1)) {
    const Tensor* const sizes = context.InputValue(1);
    if (sizes == nullptr) return context.Unimplemented("the sizes depend on data");
    return ToInt64s(*sizes);
  }
  const int64_t parts = context.num_outputs();
  const int64_t size = (whole + parts - 1) / parts;
  std::vector<int64_t> equal(static_cast<size_t>(parts), size);
  equal.back() = whole - size * (parts - 1);
  return equal;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSplit(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const CutShape cut,
                        CutShapeOf(context, context.InputShape(0), context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, SplitSizes(context, cut.whole));
  std::vector<StridedCopy> copies(static_cast<size_t>(context.num_outputs()));
  int64_t first = 0;
  for (int i = 0; i < context.num_outputs(); ++i) {
    const int64_t part = parts[static_cast<size_t>(i)];
    if (context.HasOutput(i)) {
      WEFT_ASSIGN_OR_RETURN(copies[static_cast<size_t>(i)],
                            StridedCopy::Make(context,
                                              {{cut.outer, cut.whole * cut.inner, part * cut.inner},
                                               {part * cut.inner, 1, 1}},
                                              cut.width, /*from_offset=*/first * cut.inner));
    }
    first += part;
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

// A slice as the elements of the whole tensor that it consists of.
struct SliceCopy {
  std::vector<CopyAxis> axes;  // from the whole tensor to the sliced one
  int64_t offset = 0;          // in the whole tensor
};

absl::StatusOr<SliceCopy> SliceCopyOf(const PrepareContext& context, int first_list,
                                      const Shape& whole, const Shape& sliced) {
  WEFT_ASSIGN_OR_RETURN(const SliceLists lists, SliceListsOf(context, first_list, whole.rank()));
  const std::vector<SliceRange> ranges = ResolveSlice(lists, whole);
  const auto whole_strides = whole.Strides();
  const auto sliced_strides = sliced.Strides();
  SliceCopy copy;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const SliceRange& range = ranges[static_cast<size_t>(axis)];
    if (range.count != sliced.dim(axis)) {
      return context.InvalidArgument("the slice does not have the shape " + sliced.ToString());
    }
    // A step that is never taken must not overflow.
    const int64_t step = range.count > 1 ? range.step : 0;
    copy.axes.push_back({range.count, whole_strides[axis] * step, sliced_strides[axis]});
    copy.offset += range.first * whole_strides[axis];
  }
  return copy;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(SliceCopy copy,
                        SliceCopyOf(context, 1, context.InputShape(0), context.OutputShape(0)));
  return CopyKernel(context, std::move(copy.axes), copy.offset);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSliceGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  const Shape& whole = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(SliceCopy slice, SliceCopyOf(context, 2, whole, context.InputShape(0)));
  for (CopyAxis& axis : slice.axes) std::swap(axis.from_stride, axis.to_stride);
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy,
                        StridedCopy::Make(context, std::move(slice.axes), width,
                                          /*from_offset=*/0, slice.offset));
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
  const Shape& output = context.OutputShape(0);
  const auto from_strides = context.InputShape(0).Strides();
  const auto to_strides = output.Strides();
  const std::vector<int64_t> perm = context.attributes().Ints("perm");
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t from = perm.empty() ? output.rank() - 1 - axis : perm[static_cast<size_t>(axis)];
    axes.push_back({output.dim(axis), from_strides[from], to_strides[axis]});
  }
  return CopyKernel(context, std::move(axes));
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

// ---- DepthToSpace, SpaceToDepth

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDepthSpace(const PrepareContext& context,
                                                          bool to_space) {
  const Shape& x = context.InputShape(0);
  const Shape& image = to_space ? context.OutputShape(0) : x;
  const Shape& deep = to_space ? x : context.OutputShape(0);
  const int64_t block = context.attributes().Int("blocksize", 1);
  const int64_t channels = image.dim(1);
  const int64_t height = deep.dim(2);
  const int64_t width = deep.dim(3);
  const int64_t plane = height * width;
  // DCR: channel = (row in block, column in block, channel of the image); CRD: channel first.
  const bool depth_first = context.attributes().String("mode", "DCR") == "DCR";
  const int64_t deep_channel = plane * (depth_first ? 1 : block * block);
  const int64_t deep_column = plane * (depth_first ? channels : 1);
  const int64_t row = width * block;  // of the image
  const int64_t sample = channels * plane * block * block;
  // From deep to image.
  std::vector<CopyAxis> axes = {{x.dim(0), sample, sample},
                                {channels, deep_channel, plane * block * block},
                                {height, width, row * block},
                                {block, deep_column * block, row},
                                {width, 1, block},
                                {block, deep_column, 1}};
  if (!to_space) {
    for (CopyAxis& axis : axes) std::swap(axis.from_stride, axis.to_stride);
  }
  return CopyKernel(context, std::move(axes));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDepthToSpace(const PrepareContext& context) {
  return PrepareDepthSpace(context, true);
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSpaceToDepth(const PrepareContext& context) {
  return PrepareDepthSpace(context, false);
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
