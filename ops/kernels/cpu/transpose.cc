#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  const Shape& input = context.InputShape(0);
  const Shape& output = context.OutputShape(0);
  const auto from_strides = input.Strides();
  const auto to_strides = output.Strides();
  const std::vector<int64_t> perm = context.attributes().Ints("perm");
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t from = perm.empty() ? output.rank() - 1 - axis : perm[axis];
    axes.push_back({output.dim(axis), from_strides[from], to_strides[axis]});
  }
  return MakeKernel([copy = StridedCopy(std::move(axes), width),
                     threads = context.threads()](const KernelContext& run) {
    copy.Run(run.inputs[0], run.outputs[0], threads);
    return absl::OkStatus();
  });
}

// Bytes are moved, whatever they mean: the kernel is its own reference.
WEFT_REGISTER_KERNEL("", "Transpose", DeviceKind::kCpu, PrepareTranspose);
WEFT_REGISTER_REFERENCE_KERNEL("", "Transpose", PrepareTranspose);

}  // namespace
}  // namespace weft::cpu
