// LinearAttention and its gradient. A gradient wants the states of all steps: they are computed
// again chunk by chunk, from the states that chunks begin with, so that few are kept.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/attention/linear_attention_launch.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Inputs of LinearAttention; those of the gradient lie behind dY and dpresent_state.
enum LinearInputs {
  kLinearQuery,
  kLinearKey,
  kLinearValue,
  kLinearPast,
  kLinearDecay,
  kLinearBeta
};
constexpr int kGradientsBefore = 2;

bool IsFloatOfTheGpu(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// What both kernels have; `first` is the number of the query among the inputs.
struct LinearAttentionPlan {
  LinearAttentionPlan(const PrepareContext& context, int first_input) : first(first_input) {
    const Attributes& attributes = context.attributes();
    dtype = context.InputDType(first + kLinearQuery);
    const Shape& query = context.InputShape(first + kLinearQuery);
    of.batch = query.dim(0);
    of.steps = query.dim(1);
    of.q_heads = attributes.Int("q_num_heads", 1);
    of.kv_heads = attributes.Int("kv_num_heads", 1);
    of.key_size = context.InputShape(first + kLinearKey).dim(2) / of.kv_heads;
    of.value_size = context.InputShape(first + kLinearValue).dim(2) / of.kv_heads;
    const double root = std::sqrt(static_cast<double>(std::max<int64_t>(of.key_size, 1)));
    const double scale = attributes.Float("scale", 0.0f);
    of.scale = scale == 0 ? 1 / root : scale;
    has_past = context.HasInput(first + kLinearPast);
    state_dtype = has_past ? context.InputDType(first + kLinearPast) : dtype;
    if (context.HasInput(first + kLinearDecay)) {
      of.decays = context.InputShape(first + kLinearDecay).dim(2) / of.kv_heads;
    }
    if (context.HasInput(first + kLinearBeta)) {
      of.betas = context.InputShape(first + kLinearBeta).dim(2);
    }
  }

  // Unimplemented for operands that are not of one floating type of 16 bits and more; the past
  // state may be of another.
  absl::Status Check(const PrepareContext& context) const {
    for (const DType one : {dtype, state_dtype}) {
      if (IsFloatOfTheGpu(one)) continue;
      return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(one))));
    }
    for (const int i : {kLinearKey, kLinearValue, kLinearDecay, kLinearBeta}) {
      if (!context.HasInput(first + i) || context.InputDType(first + i) == dtype) continue;
      return context.Unimplemented(
          absl::StrCat("linear attention on GPUs has operands of one type; the query is ",
                       std::string(DTypeName(dtype)), ", input ", first + i, " is ",
                       std::string(DTypeName(context.InputDType(first + i)))));
    }
    return absl::OkStatus();
  }

  bool IsWide() const { return dtype == DType::kFloat64 || state_dtype == DType::kFloat64; }
  int64_t Width() const { return IsWide() ? sizeof(double) : sizeof(float); }
  int64_t States() const { return of.batch * of.kv_heads * of.key_size * of.value_size; }

  LinearAttentionOperands Operands(const KernelContext& run) const {
    LinearAttentionOperands operands = of;
    operands.query = run.inputs[first + kLinearQuery];
    operands.key = run.inputs[first + kLinearKey];
    operands.value = run.inputs[first + kLinearValue];
    if (of.decays > 0) operands.decay = run.inputs[first + kLinearDecay];
    if (of.betas > 0) operands.beta = run.inputs[first + kLinearBeta];
    if (has_past) operands.past_state = {run.inputs[first + kLinearPast], state_dtype};
    return operands;
  }

  int first;
  DType dtype, state_dtype;
  bool has_past;
  LinearAttentionOperands of;  // sizes alone
};

class LinearAttentionKernel final : public Kernel {
 public:
  LinearAttentionKernel(const PrepareContext& context, const LinearAttentionPlan& plan)
      : plan_(plan), wants_state_(context.HasOutput(1)) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(plan_.States() * plan_.Width());
  }

  absl::Status Run(const KernelContext& run) override {
    LinearAttentionForward forward;
    forward.of = plan_.Operands(run);
    forward.state = run.workspace;
    forward.y = run.outputs[0];
    if (wants_state_) forward.present_state = {run.outputs[1], plan_.state_dtype};
    return LaunchStatus(LaunchLinearAttention(QueueOf(run), plan_.dtype, plan_.IsWide(), forward),
                        "LinearAttention");
  }

 private:
  const LinearAttentionPlan plan_;
  const bool wants_state_;
};

class LinearAttentionGradKernel final : public Kernel {
 public:
  LinearAttentionGradKernel(const PrepareContext& context, const LinearAttentionPlan& plan)
      : plan_(plan), has_dy_(context.HasInput(0)), has_dpresent_(context.HasInput(1)) {
    if (has_dpresent_) dpresent_dtype_ = context.InputDType(1);
    for (int i = 0; i <= kLinearBeta; ++i) wants_[i] = context.HasOutput(i);
    // What is kept: a state for each chunk, and two for each step of one chunk.
    const int64_t steps = std::max<int64_t>(plan_.of.steps, 1);
    chunk_ = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(steps) / 2)));
    chunks_ = (steps + chunk_ - 1) / chunk_;
    const int64_t state = plan_.States() * plan_.Width();
    const int64_t values =
        plan_.of.batch * plan_.of.kv_heads * chunk_ * plan_.of.value_size * plan_.Width();
    starts_ = layout_.Add(static_cast<size_t>(chunks_ * state));
    running_ = layout_.Add(static_cast<size_t>(state));
    states_ = layout_.Add(static_cast<size_t>(chunk_ * state));
    dstates_ = layout_.Add(static_cast<size_t>(chunk_ * state));
    u_ = layout_.Add(static_cast<size_t>(values));
    dw_ = layout_.Add(static_cast<size_t>(values));
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    LinearAttentionForward forward;
    forward.of = plan_.Operands(run);
    forward.state = At(run.workspace, running_);
    forward.starts = At(run.workspace, starts_);
    forward.chunk = chunk_;
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchLinearAttention(QueueOf(run), plan_.dtype, plan_.IsWide(), forward),
                     "the states of LinearAttentionGrad"));
    LinearAttentionChunk chunk = ChunkOf(run);
    for (int64_t number = chunks_ - 1; number >= 0; --number) {
      chunk.begin = number * chunk_;
      chunk.end = std::min(chunk.begin + chunk_, plan_.of.steps);
      chunk.is_last = number == chunks_ - 1;
      chunk.start =
          At(run.workspace, starts_ + static_cast<size_t>(number * plan_.States() * plan_.Width()));
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchLinearAttentionChunk(QueueOf(run), plan_.dtype, plan_.IsWide(), chunk),
                       "LinearAttentionGrad"));
    }
    return absl::OkStatus();
  }

 private:
  LinearAttentionChunk ChunkOf(const KernelContext& run) const {
    LinearAttentionChunk chunk;
    chunk.of = plan_.Operands(run);
    chunk.chunk = chunk_;
    chunk.dstate = At(run.workspace, running_);
    chunk.states = At(run.workspace, states_);
    chunk.dstates = At(run.workspace, dstates_);
    chunk.u = At(run.workspace, u_);
    chunk.dw = At(run.workspace, dw_);
    if (has_dy_) chunk.dy = run.inputs[0];
    if (has_dpresent_) chunk.dpresent_state = {run.inputs[1], dpresent_dtype_};
    if (wants_[kLinearQuery]) chunk.dquery = run.outputs[kLinearQuery];
    if (wants_[kLinearKey]) chunk.dkey = run.outputs[kLinearKey];
    if (wants_[kLinearValue]) chunk.dvalue = run.outputs[kLinearValue];
    if (wants_[kLinearPast]) chunk.dpast_state = {run.outputs[kLinearPast], plan_.state_dtype};
    if (wants_[kLinearDecay]) chunk.ddecay = run.outputs[kLinearDecay];
    if (wants_[kLinearBeta]) chunk.dbeta = run.outputs[kLinearBeta];
    return chunk;
  }

  const LinearAttentionPlan plan_;
  const bool has_dy_;
  const bool has_dpresent_;
  DType dpresent_dtype_ = DType::kFloat32;
  bool wants_[kLinearBeta + 1] = {};
  int64_t chunk_ = 1;
  int64_t chunks_ = 1;
  WorkspaceLayout layout_;
  size_t starts_ = 0, running_ = 0, states_ = 0, dstates_ = 0, u_ = 0, dw_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearAttention(const PrepareContext& context) {
  const LinearAttentionPlan plan(context, 0);
  WEFT_RETURN_IF_ERROR(plan.Check(context));
  return std::make_unique<LinearAttentionKernel>(context, plan);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearAttentionGrad(const PrepareContext& context) {
  const LinearAttentionPlan plan(context, kGradientsBefore);
  WEFT_RETURN_IF_ERROR(plan.Check(context));
  if (context.HasInput(0) && context.InputDType(0) != plan.dtype) {
    return context.Unimplemented(absl::StrCat("dY is ",
                                              std::string(DTypeName(context.InputDType(0))),
                                              ", the query ", std::string(DTypeName(plan.dtype))));
  }
  if (context.HasInput(1) && !IsFloatOfTheGpu(context.InputDType(1))) {
    return context.Unimplemented(
        absl::StrCat("no kernel for ", std::string(DTypeName(context.InputDType(1)))));
  }
  return std::make_unique<LinearAttentionGradKernel>(context, plan);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LinearAttention", DeviceKind::kCuda, PrepareLinearAttention);
WEFT_REGISTER_KERNEL("ai.weft", "LinearAttentionGrad", DeviceKind::kCuda,
                     PrepareLinearAttentionGrad);

}  // namespace weft::cuda
