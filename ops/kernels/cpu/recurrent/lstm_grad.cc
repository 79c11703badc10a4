// LstmGrad and RnnGrad: the steps of LSTM and RNN, backward.
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/recurrent/lstm_cell.h"
#include "ops/kernels/cpu/recurrent/recurrent_grad.h"

namespace weft::cpu {
namespace {

// A cell whose gates' arguments all get the state through R: one product per step. What the cell
// computes is written beside each other for all samples, then copied to their rows.
template <typename S>
class OneProductKernel : public RecurrentGradKernel<S> {
 public:
  using Base = RecurrentGradKernel<S>;

 protected:
  // May throw dnnl::error.
  OneProductKernel(const PrepareContext& context, const RecurrentGeometry& g)
      : Base(context, g, /*adds=*/false) {
    dgates_ = this->Reserve(g.batch * g.gates());
    const GateProductOptions options{.stored = Stored::kPlain, .threads = this->threads_};
    product_ = GateProduct<S>(g.batch, g.hidden, g.gates(), options, this->layout_);
    widths_[kGradOfGates] = g.gates();
    widths_[kGradPreviousH] = g.hidden;
  }

  // The gradients of the gates' arguments from Dh(b).
  virtual void Cell(const KernelContext& context, int64_t d, int64_t step, int64_t t, int64_t b,
                    S* dgates) = 0;

  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    const RecurrentGeometry& g = this->geometry_;
    S* const dgates = this->Values(context, dgates_);
    std::fill_n(dgates, g.batch * g.gates(), S(0));  // samples that end early are not computed
    return product_.Pack(Input<S>(context, kGradR) + d * g.gates() * g.hidden, d,
                         context.workspace);
  }

  absl::Status Step(const KernelContext& context, int64_t d, int64_t step) override {
    const int64_t width = this->geometry_.gates();
    S* const dgates = this->Values(context, dgates_);
    this->ForEachSample(context, d, step, widths_, [&](int64_t b, int64_t t) {
      S* const own = dgates + b * width;
      Cell(context, d, step, t, b, own);
      std::copy_n(own, width, this->OutputRow(context, kGradOfGates, width, d, t, b));
    });
    return product_.Run(dgates, nullptr, this->ThroughR(context), context.workspace);
  }

  int64_t widths_[kRecurrentGradOutputs] = {};

 private:
  GateProduct<S> product_;
  size_t dgates_ = 0;
};

template <typename S>
class LstmGradKernel final : public OneProductKernel<S> {
 public:
  using Base = OneProductKernel<S>;

  // May throw dnnl::error. `activations`: three per direction.
  LstmGradKernel(const PrepareContext& context, const RecurrentGeometry& g,
                 std::vector<Activation> activations)
      : Base(context, g),
        activations_(std::move(activations)),
        couple_(context.attributes().Int("input_forget", 0) != 0) {
    dc_ = this->Reserve(g.batch * g.hidden);
    this->widths_[kGradPreviousC] = g.hidden;
  }

 protected:
  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    this->LoadFinal(context, kGradFinalC, d, this->Values(context, dc_));
    return Base::StartDirection(context, d);
  }

  void EndDirection(const KernelContext& context, int64_t d) override {
    this->StoreInitial(context, kGradOfInitialC, d, this->Values(context, dc_));
  }

  void Cell(const KernelContext& context, int64_t d, int64_t step, int64_t t, int64_t b,
            S* dgates) override {
    const int64_t n = this->geometry_.hidden;
    const S* const previous = PreviousC(context, d, b, step);
    this->CopyOrClear(previous, n, this->OutputRow(context, kGradPreviousC, n, d, t, b));
    StepLstmBack(CellOf(context, d), this->InputRow(context, kGradGates, 4 * n, d, t, b),
                 this->InputRow(context, kGradCells, n, d, t, b), previous, this->Dh(context, b),
                 this->Values(context, dc_) + b * n, dgates);
  }

 private:
  const S* PreviousC(const KernelContext& context, int64_t d, int64_t b, int64_t step) const {
    const int64_t n = this->geometry_.hidden;
    if (step > 0) {
      const int64_t t = this->TimeOf(context, d, b, step - 1);
      return this->InputRow(context, kGradCells, n, d, t, b);
    }
    if (!this->HasInput(kGradInitialC)) return nullptr;
    return Input<S>(context, kGradInitialC) + this->geometry_.state_offset(d, b);
  }

  LstmCell<S> CellOf(const KernelContext& context, int64_t d) const {
    LstmCell<S> cell;
    cell.hidden = this->geometry_.hidden;
    cell.gate = activations_[3 * d];
    cell.candidate = activations_[3 * d + 1];
    cell.output = activations_[3 * d + 2];
    cell.clip = this->clip_;
    cell.couple = couple_;
    if (this->HasInput(kGradP)) cell.peepholes = Input<S>(context, kGradP) + 3 * d * cell.hidden;
    return cell;
  }

  const std::vector<Activation> activations_;
  const bool couple_;
  size_t dc_ = 0;
};

template <typename S>
class RnnGradKernel final : public OneProductKernel<S> {
 public:
  // May throw dnnl::error. `activations`: one per direction.
  RnnGradKernel(const PrepareContext& context, const RecurrentGeometry& g,
                std::vector<Activation> activations)
      : OneProductKernel<S>(context, g), activations_(std::move(activations)) {}

 protected:
  void Cell(const KernelContext& context, int64_t d, int64_t, int64_t t, int64_t b,
            S* dgates) override {
    const int64_t n = this->geometry_.hidden;
    std::copy_n(this->Dh(context, b), n, dgates);
    MultiplyBySlopes(activations_[d], this->clip_, this->InputRow(context, kGradGates, n, d, t, b),
                     n, dgates);
  }

 private:
  const std::vector<Activation> activations_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLstmGrad(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGradGeometryOf(context, 4);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Sigmoid", "Tanh", "Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kGradR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<LstmGradKernel<decltype(zero)>>(context, geometry, activations);
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRnnGrad(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGradGeometryOf(context, 1);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kGradR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<RnnGradKernel<decltype(zero)>>(context, geometry, activations);
      });
}

}  // namespace

WEFT_REGISTER_KERNEL(kWeftDomain, "LstmGrad", DeviceKind::kCpu, Widened(PrepareLstmGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "RnnGrad", DeviceKind::kCpu, Widened(PrepareRnnGrad));

}  // namespace weft::cpu
