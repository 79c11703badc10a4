// Attention with the logarithms of its sums, and its gradient by them, through cuDNN: what
// JoinAttentionGradients (ops/fusion/attention_gradient.h) makes of a step where cuDNN has plans
// for both. Where it has none, the step keeps the nodes that it had.
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/fusion/attention_gradient.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/attention/attention_dnn.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

AttentionSpec SpecOfForm(const AttentionForm& form) {
  AttentionSpec spec;
  spec.dtype = form.dtype;
  spec.query = HeadsTensor(form.query, form.q_heads);
  spec.key = HeadsTensor(form.key, form.kv_heads);
  spec.value = HeadsTensor(form.value, form.kv_heads);
  spec.result = HeadsTensor(form.result, form.q_heads);
  spec.scale = form.scale;
  spec.causal = form.causal;
  return spec;
}

// `first`: the place of the query among the inputs. Key and value follow it.
AttentionSpec SpecOfJoined(const PrepareContext& context, int first, const Shape& result) {
  const Attributes& attributes = context.attributes();
  AttentionForm form;
  form.dtype = context.InputDType(first);
  form.query = context.InputShape(first);
  form.key = context.InputShape(first + 1);
  form.value = context.InputShape(first + 2);
  form.result = result;
  form.q_heads = attributes.Int("q_num_heads", 1);
  form.kv_heads = attributes.Int("kv_num_heads", 1);
  form.scale = attributes.Float("scale", 1.0f);
  form.causal = attributes.Int("is_causal", 0) != 0;
  return SpecOfForm(form);
}

std::string NameOfNode(const Node& node) {
  return absl::StrCat("node '", node.name, "' (", node.op, ")");
}

// What computes both nodes; Unimplemented where cuDNN has no plan for one of them.
absl::Status PlansExist(Dnn& library, const AttentionSpec& spec) {
  WEFT_RETURN_IF_ERROR(CheckAttention(spec));
  WEFT_RETURN_IF_ERROR(library.PrepareAttention(spec).status());
  return library.PrepareAttentionGradient(spec).status();
}

absl::StatusOr<bool> CudnnTakesAttention(Device& device, const AttentionForm& form,
                                         const Node& node) {
  const absl::StatusOr<Dnn*> library = DnnOf(device);
  WEFT_RETURN_IF_ERROR(Annotate(library.status(), NameOfNode(node)));
  const absl::Status plans = PlansExist(**library, SpecOfForm(form));
  if (plans.ok()) return true;
  if (!absl::IsUnimplemented(plans)) return Annotate(plans, NameOfNode(node));
  Log(LogLevel::kInfo, "the gradient of node '", node.name,
      "' and of those like it does not go through cuDNN: ", std::string(plans.message()));
  return false;
}

[[maybe_unused]] const bool gpus_take_attention =
    RegisterAttentionTaker(DeviceKind::kCuda, CudnnTakesAttention);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareWithSums(const PrepareContext& context) {
  const std::string name = NameOfNode(context.node());
  const absl::StatusOr<Dnn*> library = DnnOf(context.device());
  WEFT_RETURN_IF_ERROR(Annotate(library.status(), name));
  auto prepared = (*library)->PrepareAttention(SpecOfJoined(context, 0, context.OutputShape(0)));
  WEFT_RETURN_IF_ERROR(Annotate(prepared.status(), name));
  const size_t bytes = (*prepared)->workspace_bytes();
  return MakeKernel(
      [attention = *std::move(prepared), bytes](const KernelContext& run) {
        AttentionOperands operands;
        operands.query = run.inputs[0];
        operands.key = run.inputs[1];
        operands.value = run.inputs[2];
        operands.result = run.outputs[0];
        operands.log_sums = static_cast<float*>(run.outputs[1]);
        return attention->Run(operands, DnnWorkspaceIn(run.workspace, bytes), QueueOf(run));
      },
      DnnWorkspaceRoom(bytes));
}

// The library writes all three gradients: those that nobody wants lie in the workspace, behind its
// own, each aligned like that.
struct GradientRoom {
  size_t bytes = 0;
  std::array<size_t, 3> at = {};
  std::array<bool, 3> is_inside = {};
};

GradientRoom RoomOf(const PrepareContext& context, size_t library_bytes) {
  const auto rounded = [](size_t bytes) {
    return (bytes + kDnnWorkspaceAlignment - 1) / kDnnWorkspaceAlignment * kDnnWorkspaceAlignment;
  };
  GradientRoom room;
  room.bytes = rounded(library_bytes);
  for (int i = 0; i < 3; ++i) {
    if (i < context.num_outputs() && context.HasOutput(i)) continue;
    const int like = kGradQuery + i;
    room.is_inside[i] = true;
    room.at[i] = room.bytes;
    room.bytes += rounded(static_cast<size_t>(
        DTypeBytes(context.InputDType(like), context.InputShape(like).num_elements())));
  }
  return room;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttentionGrad(const PrepareContext& context) {
  const std::string name = NameOfNode(context.node());
  const absl::StatusOr<Dnn*> library = DnnOf(context.device());
  WEFT_RETURN_IF_ERROR(Annotate(library.status(), name));
  auto prepared = (*library)->PrepareAttentionGradient(
      SpecOfJoined(context, kGradQuery, context.InputShape(kGradY)));
  WEFT_RETURN_IF_ERROR(Annotate(prepared.status(), name));
  const GradientRoom room = RoomOf(context, (*prepared)->workspace_bytes());
  const bool has_own = (*prepared)->workspace_bytes() > 0;
  return MakeKernel(
      [attention = *std::move(prepared), room, has_own](const KernelContext& run) {
        char* const inside = static_cast<char*>(DnnWorkspaceIn(run.workspace, room.bytes));
        const auto gradient = [&](int i) -> void* {
          return room.is_inside[i] ? inside + room.at[i] : run.outputs[i];
        };
        AttentionGradientOperands operands;
        operands.dresult = run.inputs[kGradOfY];
        operands.query = run.inputs[kGradQuery];
        operands.key = run.inputs[kGradKey];
        operands.value = run.inputs[kGradValue];
        operands.result = run.inputs[kGradY];
        operands.log_sums = static_cast<const float*>(run.inputs[kGradLogSums]);
        operands.dquery = gradient(kGradOfQuery);
        operands.dkey = gradient(kGradOfKey);
        operands.dvalue = gradient(kGradOfValue);
        return attention->Run(operands, has_own ? inside : nullptr, QueueOf(run));
      },
      DnnWorkspaceRoom(room.bytes));
}

WEFT_REGISTER_KERNEL(kWeftDomain, kAttentionWithSumsOp, DeviceKind::kCuda, PrepareWithSums);
WEFT_REGISTER_KERNEL(kWeftDomain, kAttentionGradOp, DeviceKind::kCuda, PrepareAttentionGrad);

}  // namespace
}  // namespace weft::cuda
