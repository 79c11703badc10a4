#include <array>
#include <vector>

#include "ops/defs/movement/copy_geometry.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

// Elements smaller than a byte, one by one. `axes` count elements.
std::unique_ptr<Kernel> MakePackedTranspose(std::vector<CopyAxis> axes, int64_t count, int bits) {
  return MakeKernel([axes = std::move(axes), count, bits](const KernelContext& run) {
    const int rank = static_cast<int>(axes.size());
    std::array<int64_t, kMaxRank> at = {};
    int64_t from = 0;
    for (int64_t to = 0; to < count; ++to) {
      SetPackedElement(run.outputs[0], bits, to, PackedElement(run.inputs[0], bits, from));
      for (int d = rank - 1; d >= 0; --d) {
        from += axes[d].from_stride;
        if (++at[d] < axes[d].size) break;
        from -= at[d] * axes[d].from_stride;
        at[d] = 0;
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(const PrepareContext& context) {
  const int bits = DTypeBits(context.InputDType(0));
  std::vector<CopyAxis> axes = TransposeAxes(context);
  if (bits > 0 && bits < 8) {
    return MakePackedTranspose(std::move(axes), context.OutputShape(0).num_elements(), bits);
  }
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
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
