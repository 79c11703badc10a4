// LSTM and LstmGrad.
#include <memory>
#include <utility>

#include "ops/kernel.h"
#include "ops/kernels/cuda/recurrent/recurrent_kernel.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"
#include "ops/kernels/cuda/recurrent/recurrent_plan.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr int32_t kGatesOfLstm = 4;

template <typename T>
class LstmKernel final : public ForwardKernel<T> {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<LstmKernel>(new LstmKernel(context, plan));
    if (plan.steps.elements() == 0) return kernel;
    WEFT_RETURN_IF_ERROR(kernel->PrepareInput(context, kGatesOfLstm));
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, kGatesOfLstm, /*backward=*/false));
    return kernel;
  }

 private:
  LstmKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : ForwardKernel<T>(context, plan),
        couples_(context.attributes().Int("input_forget", 0) != 0) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    LstmStep<T> lstm;
    lstm.cell = this->CellOf(run, kRecurrentGates);
    lstm.c = this->Cells(run);
    lstm.peepholes = this->InputOrNull(run, kRecurrentP, this->has(kRecurrentP));
    lstm.cells = this->OutputOrNull(run, kRecurrentCells, this->gives(kRecurrentCells));
    lstm.couple = couples_ ? 1 : 0;
    this->plan_.CopyActivations(0, lstm.gate);
    this->plan_.CopyActivations(1, lstm.candidate);
    this->plan_.CopyActivations(2, lstm.output);
    WEFT_RETURN_IF_ERROR(this->RunProduct(product_, lstm.cell.h, run.inputs[kRecurrentR],
                                          this->FromState(run), run));
    return LaunchStatus(LaunchLstmStep(QueueOf(run), steps, step, lstm), "a step of LSTM");
  }

  const bool couples_;
  GateProduct product_;
};

template <typename T>
class LstmGradKernel final : public BackwardKernel<T> {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const RecurrentPlan& plan) {
    auto kernel = std::unique_ptr<LstmGradKernel>(new LstmGradKernel(context, plan));
    if (plan.steps.elements() == 0) return kernel;
    kernel->ReserveStates(kGatesOfLstm);
    WEFT_ASSIGN_OR_RETURN(kernel->product_,
                          kernel->StateProduct(context, 0, kGatesOfLstm, /*backward=*/true));
    return kernel;
  }

 private:
  LstmGradKernel(const PrepareContext& context, const RecurrentPlan& plan)
      : BackwardKernel<T>(context, plan),
        couples_(context.attributes().Int("input_forget", 0) != 0) {}

  absl::Status Step(const KernelContext& run, const RecurrentSteps& steps, int64_t step) override {
    LstmGradStep<T> lstm;
    lstm.cell = this->CellOf(run);
    lstm.final_c = this->InputOrNull(run, kGradFinalC, this->has(kGradFinalC));
    lstm.initial_c = this->InputOrNull(run, kGradInitialC, this->has(kGradInitialC));
    lstm.cells = In<T>(run, kGradCells);
    lstm.peepholes = this->InputOrNull(run, kGradP, this->has(kGradP));
    lstm.dc = this->Carried(run);
    lstm.previous_c = this->OutputOrNull(run, kGradPreviousC, this->gives(kGradPreviousC));
    lstm.couple = couples_ ? 1 : 0;
    this->plan_.CopyActivations(0, lstm.gate);
    this->plan_.CopyActivations(1, lstm.candidate);
    this->plan_.CopyActivations(2, lstm.output);
    WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchLstmGradStep(QueueOf(run), steps, step, lstm),
                                      "a step of LSTM's gradient"));
    return this->RunProduct(product_, lstm.cell.operand, run.inputs[kGradR], this->ThroughR(run),
                            run);
  }

  const bool couples_;
  GateProduct product_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLstm(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrent(context, kGatesOfLstm));
  return PrepareRecurrent<LstmKernel>(context, plan);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLstmGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const RecurrentPlan plan, PlanRecurrentGrad(context, kGatesOfLstm));
  if (!context.HasInput(kGradCells)) return context.InvalidArgument("the input 'cells' is missing");
  return PrepareRecurrent<LstmGradKernel>(context, plan);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LSTM", DeviceKind::kCuda, PrepareLstm);
WEFT_REGISTER_KERNEL("ai.weft", "LstmGrad", DeviceKind::kCuda, PrepareLstmGrad);

}  // namespace weft::cuda
