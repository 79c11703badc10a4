// DepthToSpace and SpaceToDepth: one strided copy.
#include <utility>
#include <vector>

#include "ops/defs/movement/copy_geometry.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> CopyBlocks(const PrepareContext& context,
                                                   std::vector<CopyAxis> axes) {
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const StridedCopy copy(std::move(axes), bytes);
  const int threads = context.threads();
  return MakeKernel([copy, threads](const KernelContext& run) {
    copy.Run(run.inputs[0], run.outputs[0], threads);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDepthToSpace(const PrepareContext& context) {
  return CopyBlocks(context, DepthToSpaceAxes(context));
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSpaceToDepth(const PrepareContext& context) {
  return CopyBlocks(context, SpaceToDepthAxes(context));
}

}  // namespace

WEFT_REGISTER_KERNEL("", "DepthToSpace", DeviceKind::kCpu, PrepareDepthToSpace);
WEFT_REGISTER_KERNEL("", "SpaceToDepth", DeviceKind::kCpu, PrepareSpaceToDepth);

}  // namespace weft::cpu
