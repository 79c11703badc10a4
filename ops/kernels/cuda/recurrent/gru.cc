// RNN, GRU, RnnGrad and GruGrad.
#include <memory>
#include <utility>

#include "ops/kernel.h"
#include "ops/kernels/cuda/recurrent/recurrent_kernel.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"
#include "ops/kernels/cuda/recurrent/recurrent_plan.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr int32_t kGatesOfRnn = 1;
constexpr int32_t kGatesOfGru = 3;
constexpr int64_t kCandidateOfGru = 2;

template <typename T>
class RnnKernel final : public ForwardKernel<T> {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<RnnKernel>(new RnnKernel(context, plan));
    if (plan.steps.elements() == 0) return kernel;
    WEFT_RETURN_IF_ERROR(kernel->PrepareInput(context, kGatesOfRnn));
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, kGatesOfRnn, /*backward=*/false));
    return kernel;
  }

 private:
  RnnKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : ForwardKernel<T>(context, plan) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    RnnStep<T> rnn;
    rnn.cell = this->CellOf(run, kRecurrentGatesWithoutCells);
    this->plan_.CopyActivations(0, rnn.activation);
    WEFT_RETURN_IF_ERROR(
        this->RunProduct(product_, rnn.cell.h, run.inputs[kRecurrentR], this->FromState(run), run));
    return LaunchStatus(LaunchRnnStep(QueueOf(run), steps, step, rnn), "a step of RNN");
  }

  GateProduct product_;
};

template <typename T>
class RnnGradKernel final : public BackwardKernel<T> {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<RnnGradKernel>(new RnnGradKernel(context, plan));
    if (plan.steps.elements() == 0) return kernel;
    kernel->ReserveStates(kGatesOfRnn);
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, kGatesOfRnn, /*backward=*/true));
    return kernel;
  }

 private:
  RnnGradKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : BackwardKernel<T>(context, plan) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    RnnGradStep<T> rnn;
    rnn.cell = this->CellOf(run);
    this->plan_.CopyActivations(0, rnn.activation);
    WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchRnnGradStep(QueueOf(run), steps, step, rnn),
                                      "a step of RNN's gradient"));
    return this->RunProduct(product_, rnn.cell.operand, run.inputs[kGradR], this->ThroughR(run),
                            run);
  }

  GateProduct product_;
};

template <typename T>
class GruKernel final : public ForwardKernel<T> {
 public:
  using S = Compute<T>;

  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<GruKernel>(new GruKernel(context, plan));
    const int64_t elements = plan.steps.elements();
    if (elements == 0) return kernel;
    const int64_t gates = kernel->is_linear_ ? kGatesOfGru : kCandidateOfGru;
    WEFT_RETURN_IF_ERROR(kernel->PrepareInput(context, gates));
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, gates, /*backward=*/false));
    if (kernel->is_linear_) return kernel;
    kernel->seen_ = kernel->template Reserve<T>(elements);
    kernel->candidate_ = kernel->template Reserve<S>(elements);
    WEFT_ASSIGN_OR_RETURN(kernel->candidate_product_,
                          kernel->StateProduct(context, kCandidateOfGru, 1, /*backward=*/false));
    return kernel;
  }

 private:
  GruKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : ForwardKernel<T>(context, plan),
        is_linear_(context.attributes().Int("linear_before_reset", 0) != 0) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    GruStep<T> gru;
    gru.cell = this->CellOf(run, kRecurrentGatesWithoutCells);
    gru.wide_h = this->WideH(run);
    gru.linear = is_linear_ ? 1 : 0;
    this->plan_.CopyActivations(0, gru.gate);
    this->plan_.CopyActivations(1, gru.hidden);
    const void* const r = run.inputs[kRecurrentR];
    WEFT_RETURN_IF_ERROR(this->RunProduct(product_, gru.cell.h, r, this->FromState(run), run));
    if (!is_linear_) {
      S* const candidate = this->template Piece<S>(run, candidate_);
      gru.candidate = candidate;
      gru.seen = this->template Piece<T>(run, seen_);
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchGruReset(QueueOf(run), steps, step, gru), "the reset gate of GRU"));
      WEFT_RETURN_IF_ERROR(this->RunProduct(candidate_product_, gru.seen, r, candidate, run));
    }
    return LaunchStatus(LaunchGruStep(QueueOf(run), steps, step, gru), "a step of GRU");
  }

  const bool is_linear_;
  GateProduct product_;
  GateProduct candidate_product_;
  size_t seen_ = 0;
  size_t candidate_ = 0;
};

template <typename T>
class GruGradKernel final : public BackwardKernel<T> {
 public:
  using S = Compute<T>;

  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<GruGradKernel>(new GruGradKernel(context, plan));
    const int64_t elements = plan.steps.elements();
    if (elements == 0) return kernel;
    const int64_t gates = kernel->is_linear_ ? kGatesOfGru : kCandidateOfGru;
    kernel->ReserveStates(gates);
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, gates, /*backward=*/true));
    if (kernel->is_linear_) return kernel;
    kernel->candidate_ = kernel->template Reserve<T>(elements);
    kernel->dseen_ = kernel->template Reserve<S>(elements);
    WEFT_ASSIGN_OR_RETURN(kernel->candidate_product_,
                          kernel->StateProduct(context, kCandidateOfGru, 1, /*backward=*/true));
    return kernel;
  }

 private:
  GruGradKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : BackwardKernel<T>(context, plan),
        is_linear_(context.attributes().Int("linear_before_reset", 0) != 0) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    GruGradStep<T> gru;
    gru.cell = this->CellOf(run);
    gru.past = this->Carried(run);
    gru.from_state = this->OutputOrNull(run, kGradFromState, this->gives(kGradFromState));
    gru.seen = this->OutputOrNull(run, kGradSeen, this->gives(kGradSeen));
    gru.linear = is_linear_ ? 1 : 0;
    this->plan_.CopyActivations(0, gru.gate);
    this->plan_.CopyActivations(1, gru.hidden);
    const void* const r = run.inputs[kGradR];
    S* const dseen = is_linear_ ? nullptr : this->template Piece<S>(run, dseen_);
    if (!is_linear_) {
      gru.candidate = this->template Piece<T>(run, candidate_);
      gru.dseen = dseen;
    }
    WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchGruGradStep(QueueOf(run), steps, step, gru),
                                      "a step of GRU's gradient"));
    if (!is_linear_) {
      WEFT_RETURN_IF_ERROR(this->RunProduct(candidate_product_, gru.candidate, r, dseen, run));
      WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchGruGradReset(QueueOf(run), steps, step, gru),
                                        "the gradient of GRU's reset gate"));
    }
    return this->RunProduct(product_, gru.cell.operand, r, this->ThroughR(run), run);
  }

  const bool is_linear_;
  GateProduct product_;
  GateProduct candidate_product_;
  size_t candidate_ = 0;
  size_t dseen_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRnn(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrent(context, kGatesOfRnn));
  return PrepareRecurrent<RnnKernel>(context, plan);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGru(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrent(context, kGatesOfGru));
  return PrepareRecurrent<GruKernel>(context, plan);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRnnGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrentGrad(context, kGatesOfRnn));
  return PrepareRecurrent<RnnGradKernel>(context, plan);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGruGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrentGrad(context, kGatesOfGru));
  return PrepareRecurrent<GruGradKernel>(context, plan);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "RNN", DeviceKind::kCuda, PrepareRnn);
WEFT_REGISTER_KERNEL("", "GRU", DeviceKind::kCuda, PrepareGru);
WEFT_REGISTER_KERNEL("ai.weft", "RnnGrad", DeviceKind::kCuda, PrepareRnnGrad);
WEFT_REGISTER_KERNEL("ai.weft", "GruGrad", DeviceKind::kCuda, PrepareGruGrad);

}  // namespace weft::cuda
