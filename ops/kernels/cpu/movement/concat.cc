// Concat and Split: one copy per part.
#include "ops/defs/movement/copy_geometry.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.OutputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<CopyGeometry> parts, ConcatGeometry(context));
  std::vector<StridedCopy> copies;
  for (const CopyGeometry& part : parts) {
    copies.emplace_back(part.axes, width, part.from_offset, part.to_offset);
  }
  return MakeKernel(
      [copies = std::move(copies), threads = context.threads()](const KernelContext& run) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(run.inputs[i], run.outputs[0], threads);
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
    copies[i] = StridedCopy(parts[i].axes, width, parts[i].from_offset, parts[i].to_offset);
  }
  return MakeKernel(
      [copies = std::move(copies), threads = context.threads()](const KernelContext& run) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(run.inputs[0], run.outputs[i], threads);
        }
        return absl::OkStatus();
      });
}

// Bytes are moved, whatever they mean: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "Concat", DeviceKind::kCpu, PrepareConcat);
WEFT_REGISTER_REFERENCE_KERNEL("", "Concat", PrepareConcat);
WEFT_REGISTER_KERNEL("", "Split", DeviceKind::kCpu, PrepareSplit);
WEFT_REGISTER_REFERENCE_KERNEL("", "Split", PrepareSplit);

}  // namespace
}  // namespace weft::cpu
