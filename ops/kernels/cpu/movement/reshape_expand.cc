// Expand and Tile: copies that read the same elements several times.
#include "ops/defs/movement/copy_geometry.h"
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
  return CopyKernel(context, ExpandAxes(context));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTile(const PrepareContext& context) {
  return CopyKernel(context, TileAxes(context));
}

// Bytes are moved, whatever they mean: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "Expand", DeviceKind::kCpu, PrepareExpand);
WEFT_REGISTER_REFERENCE_KERNEL("", "Expand", PrepareExpand);
WEFT_REGISTER_KERNEL("", "Tile", DeviceKind::kCpu, PrepareTile);
WEFT_REGISTER_REFERENCE_KERNEL("", "Tile", PrepareTile);

}  // namespace
}  // namespace weft::cpu
