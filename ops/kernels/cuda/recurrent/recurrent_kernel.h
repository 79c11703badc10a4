// The kernels that RNN, GRU and LSTM, and their gradients, derive from: what lies around the steps.
// For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_KERNEL_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"
#include "ops/kernels/cuda/recurrent/recurrent_operands.h"
#include "ops/kernels/cuda/recurrent/recurrent_plan.h"
#include "platform/status_macros.h"

namespace weft::cuda {

// T: the element type.
template <typename T>
class RecurrentKernel : public Kernel {
 public:
  using S = Compute<T>;

  size_t workspace_bytes() const override { return layout_.total() + product_bytes_; }

 protected:
  RecurrentKernel(RecurrentPlan plan, int lengths_input)
      : plan_(std::move(plan)), lengths_input_(lengths_input) {}

  // A product of all samples of a step. Its rows of R begin at gate `first` of a direction.
  absl::StatusOr<GateProduct> StateProduct(const PrepareContext& context, int64_t first,
                                           int64_t gates, bool backward) {
    const RecurrentSteps& steps = plan_.steps;
    GateProductSizes sizes;
    sizes.directions = steps.directions;
    sizes.m = steps.batch;
    sizes.n = backward ? steps.hidden : gates * steps.hidden;
    sizes.k = backward ? gates * steps.hidden : steps.hidden;
    sizes.trans_b = !backward;
    sizes.b_direction = plan_.gates() * steps.hidden;
    sizes.b_begin = first * steps.hidden * steps.hidden;
    return AddProduct(context, sizes);
  }
  absl::StatusOr<GateProduct> AddProduct(const PrepareContext& context,
                                         const GateProductSizes& sizes) {
    WEFT_ASSIGN_OR_RETURN(GateProduct product, GateProduct::Create(context, plan_, sizes));
    product_bytes_ = std::max(product_bytes_, product.workspace_bytes());
    return product;
  }
  absl::Status RunProduct(GateProduct& product, const void* a, const void* b, void* y,
                          const KernelContext& run) const {
    return product.Run(a, b, y, At(run.workspace, layout_.total()), QueueOf(run));
  }

  // Memory of the workspace for `count` elements.
  template <typename Element>
  size_t Reserve(int64_t count) {
    return layout_.Add(static_cast<size_t>(count) * sizeof(Element));
  }
  template <typename Element>
  static Element* Piece(const KernelContext& run, size_t offset) {
    return static_cast<Element*>(At(run.workspace, offset));
  }

  // The steps with the lengths of this run, which are checked.
  absl::StatusOr<RecurrentSteps> StepsOf(const KernelContext& run) const {
    RecurrentSteps steps = plan_.steps;
    if (lengths_input_ < 0) return steps;
    steps.lengths = In<int32_t>(run, lengths_input_);
    FaultReport report;
    report.fault = run.stream->fault();
    report.source = plan_.lengths_source.c_str();
    report.low = 0;
    report.high = steps.time + 1;
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchCheckLengths(QueueOf(run), steps, report), "a check of sequence_lens"));
    return steps;
  }

  // An operand that may be missing: not there, or not wanted.
  static const T* InputOrNull(const KernelContext& run, int i, bool exists) {
    return exists ? In<T>(run, i) : nullptr;
  }
  static T* OutputOrNull(const KernelContext& run, int i, bool exists) {
    return exists ? Out<T>(run, i) : nullptr;
  }

  const RecurrentPlan plan_;

 private:
  const int lengths_input_;  // -1: none
  WorkspaceLayout layout_;
  size_t product_bytes_ = 0;
};

// X W^T of all steps, then step by step.
template <typename T>
class ForwardKernel : public RecurrentKernel<T> {
 public:
  using Base = RecurrentKernel<T>;
  using S = Compute<T>;

  absl::Status Run(const KernelContext& run) final {
    if (plan_.steps.elements() == 0) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const RecurrentSteps steps, this->StepsOf(run));
    StartStates<T> start;
    start.initial_h = this->InputOrNull(run, kRecurrentInitialH, has_[kRecurrentInitialH]);
    start.initial_c = this->InputOrNull(run, kRecurrentInitialC, has_[kRecurrentInitialC]);
    start.h = this->template Piece<T>(run, h_);
    start.wide_h = WideH(run);
    if (has_cells()) start.c = this->template Piece<S>(run, c_);
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchStart(QueueOf(run), steps, start), "the start of a recurrent layer"));
    if (has_input_part()) {
      WEFT_RETURN_IF_ERROR(this->RunProduct(input_product_, run.inputs[kRecurrentX],
                                            run.inputs[kRecurrentW],
                                            this->template Piece<S>(run, from_input_), run));
    }
    for (int64_t step = 0; step < steps.time; ++step) {
      WEFT_RETURN_IF_ERROR(Step(run, steps, step));
    }
    EndStates<T> end;
    end.h = start.h;
    end.c = start.c;
    end.final_h = this->OutputOrNull(run, kRecurrentFinalH, gives_[kRecurrentFinalH]);
    end.final_c =
        this->OutputOrNull(run, kRecurrentFinalC, has_cells() && gives_[kRecurrentFinalC]);
    if (end.final_h == nullptr && end.final_c == nullptr) return absl::OkStatus();
    return LaunchStatus(LaunchEnd(QueueOf(run), steps, end), "the end of a recurrent layer");
  }

 protected:
  ForwardKernel(const PrepareContext& context, RecurrentPlan plan)
      : Base(std::move(plan), context.HasInput(kRecurrentLengths) ? kRecurrentLengths : -1) {
    for (int i = 0; i < kInputs; ++i) has_[i] = context.HasInput(i);
    for (int i = 0; i < kOutputs; ++i) gives_[i] = context.HasOutput(i);
  }

  // Divides the workspace and prepares the product with W. `state_gates`: gates of from_state.
  absl::Status PrepareInput(const PrepareContext& context, int64_t state_gates) {
    const RecurrentSteps& steps = plan_.steps;
    h_ = this->template Reserve<T>(steps.elements());
    from_state_ = this->template Reserve<S>(steps.elements() * state_gates);
    if (has_cells()) c_ = this->template Reserve<S>(steps.elements());
    if (has_wide_h()) wide_h_ = this->template Reserve<S>(steps.elements());
    if (!has_input_part()) return absl::OkStatus();
    from_input_ = this->template Reserve<S>(steps.rows() * steps.directions * plan_.gates());
    GateProductSizes sizes;
    sizes.m = steps.rows();
    sizes.n = steps.directions * plan_.gates();
    sizes.k = plan_.input;
    sizes.trans_b = true;
    WEFT_ASSIGN_OR_RETURN(input_product_, this->AddProduct(context, sizes));
    return absl::OkStatus();
  }

  virtual absl::Status Step(const KernelContext& run, const RecurrentSteps& steps,
                            int64_t step) = 0;

  // `gates`: the output with what is kept of them.
  CellOperands<T> CellOf(const KernelContext& run, int gates) const {
    CellOperands<T> cell;
    if (has_input_part()) cell.from_input = this->template Piece<S>(run, from_input_);
    cell.from_state = FromState(run);
    cell.bias = this->InputOrNull(run, kRecurrentB, has_[kRecurrentB]);
    cell.h = this->template Piece<T>(run, h_);
    cell.y = this->OutputOrNull(run, kRecurrentY, gives_[kRecurrentY]);
    cell.gates = this->OutputOrNull(run, gates, gives_[gates]);
    cell.clip = plan_.clip;
    return cell;
  }
  S* FromState(const KernelContext& run) const { return this->template Piece<S>(run, from_state_); }
  S* Cells(const KernelContext& run) const { return this->template Piece<S>(run, c_); }
  S* WideH(const KernelContext& run) const {
    return has_wide_h() ? this->template Piece<S>(run, wide_h_) : nullptr;
  }
  bool has_cells() const { return plan_.steps.gates == 4; }
  // A GRU adds to its state: rounding it to 16 bits in each step would add up.
  bool has_wide_h() const { return plan_.steps.gates == 3 && !std::is_same_v<T, S>; }
  bool has_input_part() const { return plan_.input > 0 && plan_.steps.time > 0; }
  bool has(int input) const { return has_[input]; }
  bool gives(int output) const { return gives_[output]; }

  using Base::plan_;

 private:
  static constexpr int kInputs = kRecurrentP + 1;
  static constexpr int kOutputs = kRecurrentCells + 1;

  bool has_[kInputs] = {};
  bool gives_[kOutputs] = {};
  GateProduct input_product_;
  size_t h_ = 0;
  size_t from_state_ = 0;
  size_t c_ = 0;
  size_t wide_h_ = 0;
  size_t from_input_ = 0;
};

// Step by step, from the last to the first.
template <typename T>
class BackwardKernel : public RecurrentKernel<T> {
 public:
  using Base = RecurrentKernel<T>;
  using S = Compute<T>;

  absl::Status Run(const KernelContext& run) final {
    if (plan_.steps.elements() == 0) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const RecurrentSteps steps, this->StepsOf(run));
    for (int64_t step = steps.time - 1; step >= 0; --step) {
      WEFT_RETURN_IF_ERROR(Step(run, steps, step));
    }
    EndGradients<T> end;
    end.through_r = ThroughR(run);
    if (plan_.steps.gates == 3) end.past = Carried(run);
    if (has_cells()) end.dc = Carried(run);
    end.final_h = this->InputOrNull(run, kGradFinalH, has(kGradFinalH));
    end.final_c = this->InputOrNull(run, kGradFinalC, has_cells() && has(kGradFinalC));
    end.initial_h = this->OutputOrNull(run, kGradOfInitialH, gives(kGradOfInitialH));
    end.initial_c = this->OutputOrNull(run, kGradOfInitialC, has_cells() && gives(kGradOfInitialC));
    if (end.initial_h == nullptr && end.initial_c == nullptr) return absl::OkStatus();
    return LaunchStatus(LaunchEndGradients(QueueOf(run), steps, end),
                        "the end of a recurrent layer's gradient");
  }

 protected:
  BackwardKernel(const PrepareContext& context, RecurrentPlan plan)
      : Base(std::move(plan), context.HasInput(kGradLengths) ? kGradLengths : -1) {
    for (int i = 0; i < kInputs; ++i) has_[i] = context.HasInput(i);
    for (int i = 0; i < kOutputs; ++i) gives_[i] = context.HasOutput(i);
  }

  // Divides the workspace. `state_gates`: gates of the operand of the product with R.
  void ReserveStates(int64_t state_gates) {
    const int64_t elements = plan_.steps.elements();
    operand_ = this->template Reserve<T>(elements * state_gates);
    through_r_ = this->template Reserve<S>(elements);
    if (plan_.steps.gates != 1) carried_ = this->template Reserve<S>(elements);
  }

  virtual absl::Status Step(const KernelContext& run, const RecurrentSteps& steps,
                            int64_t step) = 0;

  GradOperands<T> CellOf(const KernelContext& run) const {
    GradOperands<T> cell;
    cell.dy = this->InputOrNull(run, kGradDy, has(kGradDy));
    cell.final_h = this->InputOrNull(run, kGradFinalH, has(kGradFinalH));
    cell.through_r = ThroughR(run);
    cell.initial_h = this->InputOrNull(run, kGradInitialH, has(kGradInitialH));
    cell.y = In<T>(run, kGradY);
    cell.gates = In<T>(run, kGradGates);
    cell.dgates = this->OutputOrNull(run, kGradOfGates, gives(kGradOfGates));
    cell.previous_h = this->OutputOrNull(run, kGradPreviousH, gives(kGradPreviousH));
    cell.operand = this->template Piece<T>(run, operand_);
    cell.clip = plan_.clip;
    return cell;
  }
  S* ThroughR(const KernelContext& run) const { return this->template Piece<S>(run, through_r_); }
  // LSTM: the gradient of the cells; GRU: what goes past the gates.
  S* Carried(const KernelContext& run) const { return this->template Piece<S>(run, carried_); }
  bool has_cells() const { return plan_.steps.gates == 4; }
  bool has(int input) const { return has_[input]; }
  bool gives(int output) const { return gives_[output]; }

  using Base::plan_;

 private:
  static constexpr int kInputs = kGradCells + 1;
  static constexpr int kOutputs = kGradOfInitialC + 1;

  bool has_[kInputs] = {};
  bool gives_[kOutputs] = {};
  size_t operand_ = 0;
  size_t through_r_ = 0;
  size_t carried_ = 0;
};

// Makes a KernelOf<T> for the type of the node: Create(context, plan) is a static function of it.
template <template <typename> class KernelOf>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareRecurrent(const PrepareContext& context,
                                                         const RecurrentPlan& plan) {
  return PrepareByElement(context, plan.dtype, FloatElements{}, [&](auto zero) {
    return KernelOf<decltype(zero)>::Create(context, plan);
  });
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_KERNEL_H_
