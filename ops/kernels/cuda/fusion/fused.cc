// The kernel of fused nodes, and what GPUs fuse.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/fusion_rules.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/fusion/generated_arguments.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/region_ops.h"
#include "ops/kernels/cuda/fusion/region_text.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::shared_ptr<GeneratedKernel>> CompileRegion(Device& device,
                                                               const RegionText& region) {
  const absl::StatusOr<KernelCompiler*> compiler = KernelCompilerOf(device);
  if (!compiler.ok()) {
    return absl::Status(compiler.status().code(),
                        absl::StrCat(std::string(compiler.status().message()),
                                     "; or leave out --fuse auto: each node then has a kernel of "
                                     "its own"));
  }
  return (*compiler)->Compile(region.text);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFused(const PrepareContext& context) {
  const Graph& body = FusedBodyOf(context.node());
  WEFT_ASSIGN_OR_RETURN(const RegionText region, GenerateRegion(body));
  absl::StatusOr<std::shared_ptr<GeneratedKernel>> kernel = CompileRegion(context.device(), region);
  const std::string parts = absl::StrCat("the fused nodes ", FusedParts(body));
  WEFT_RETURN_IF_ERROR(Annotate(kernel.status(), parts));
  std::vector<int> inputs;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (context.HasInput(i)) inputs.push_back(i);
  }
  return MakeKernel([kernel = *std::move(kernel), grid = region.grid, inputs = std::move(inputs),
                     outputs = context.num_outputs(), parts](const KernelContext& run) {
    GeneratedArguments arguments = {};
    for (size_t k = 0; k < inputs.size(); ++k) arguments.x[k] = run.inputs[inputs[k]];
    for (int k = 0; k < outputs; ++k) arguments.y[k] = run.outputs[k];
    return LaunchStatus(kernel->Launch(QueueOf(run), grid, arguments), parts);
  });
}

WEFT_REGISTER_KERNEL(kWeftDomain, kFusedOp, DeviceKind::kCuda, PrepareFused);

[[maybe_unused]] const bool gpus_fuse =
    RegisterFusionRules(DeviceKind::kCuda, {.role_of = RoleOnGpu,
                                            .max_nodes = 32,
                                            .max_inputs = kMaxRegionInputs,
                                            .max_outputs = kMaxRegionOutputs});

}  // namespace
}  // namespace weft::cuda
