// Slice and SliceGrad.
#include <cstring>

#include "ops/defs/movement/slice_range.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// A slice as the elements of the whole tensor it consists of.
struct SlicedElements {
  std::vector<CopyAxis> axes;  // from the whole tensor to the sliced one
  int64_t offset = 0;          // in the whole tensor
};

absl::StatusOr<SlicedElements> ElementsOf(const PrepareContext& context, int first_list,
                                          const Shape& whole, const Shape& sliced) {
  WEFT_ASSIGN_OR_RETURN(const SliceLists lists, SliceListsOf(context, first_list, whole.rank()));
  const std::vector<SliceRange> ranges = ResolveSlice(lists, whole);
  const auto whole_strides = whole.Strides();
  const auto sliced_strides = sliced.Strides();
  SlicedElements elements;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    if (ranges[axis].count != sliced.dim(axis)) {
      return context.InvalidArgument("the slice does not have the shape " + sliced.ToString());
    }
    // A step that is never taken must not overflow.
    const int64_t step = ranges[axis].count > 1 ? ranges[axis].step : 0;
    elements.axes.push_back({ranges[axis].count, whole_strides[axis] * step, sliced_strides[axis]});
    elements.offset += ranges[axis].first * whole_strides[axis];
  }
  return elements;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(SlicedElements elements,
                        ElementsOf(context, 1, context.InputShape(0), context.OutputShape(0)));
  return MakeKernel([copy = StridedCopy(std::move(elements.axes), width, elements.offset),
                     threads = context.threads()](const KernelContext& run) {
    copy.Run(run.inputs[0], run.outputs[0], threads);
    return absl::OkStatus();
  });
}

void Clear(void* data, int64_t bytes, int threads) {
  ParallelFor(threads, bytes, /*nanoseconds_per_item=*/0.1, 64, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(data) + begin, 0, end - begin);
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSliceGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  const Shape& whole = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(SlicedElements elements,
                        ElementsOf(context, 2, whole, context.InputShape(0)));
  for (CopyAxis& axis : elements.axes) std::swap(axis.from_stride, axis.to_stride);
  StridedCopy copy(std::move(elements.axes), width, /*from_offset=*/0, elements.offset);
  const int64_t bytes = DTypeBytes(context.OutputDType(0), whole.num_elements());
  // All is overwritten when the slice was the whole tensor.
  const int64_t cleared = copy.bytes() == bytes ? 0 : bytes;
  return MakeKernel(
      [copy = std::move(copy), cleared, threads = context.threads()](const KernelContext& run) {
        Clear(run.outputs[0], cleared, threads);
        copy.Run(run.inputs[0], run.outputs[0], threads);
        return absl::OkStatus();
      });
}

// Bytes are moved, whatever they mean: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "Slice", DeviceKind::kCpu, PrepareSlice);
WEFT_REGISTER_REFERENCE_KERNEL("", "Slice", PrepareSlice);
WEFT_REGISTER_KERNEL("ai.weft", "SliceGrad", DeviceKind::kCpu, PrepareSliceGrad);
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SliceGrad", PrepareSliceGrad);

}  // namespace
}  // namespace weft::cpu
