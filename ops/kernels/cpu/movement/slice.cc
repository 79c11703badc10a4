// Slice and SliceGrad.
#include <cstring>

#include "ops/defs/movement/copy_geometry.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(CopyGeometry slice,
                        SliceGeometry(context, 1, context.InputShape(0), context.OutputShape(0)));
  return MakeKernel([copy = StridedCopy(std::move(slice.axes), width, slice.from_offset),
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
  WEFT_ASSIGN_OR_RETURN(CopyGeometry slice,
                        SliceGeometry(context, 2, whole, context.InputShape(0)));
  for (CopyAxis& axis : slice.axes) std::swap(axis.from_stride, axis.to_stride);
  StridedCopy copy(std::move(slice.axes), width, /*from_offset=*/0, slice.from_offset);
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
