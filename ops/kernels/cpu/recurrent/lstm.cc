// LSTM.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/recurrent/lstm_cell.h"
#include "ops/kernels/cpu/recurrent/recurrent.h"

namespace weft::cpu {
namespace {

enum Outputs { kY, kFinalH, kFinalC, kGates, kCells };

template <typename S>
class LstmKernel final : public RecurrentKernel<S> {
 public:
  using Base = RecurrentKernel<S>;

  // May throw dnnl::error. `activations`: three per direction.
  LstmKernel(const PrepareContext& context, const RecurrentGeometry& g,
             std::vector<Activation> activations)
      : Base(context, g, /*first_kept=*/kGates),
        activations_(std::move(activations)),
        couple_(context.attributes().Int("input_forget", 0) != 0) {
    from_state_ = this->Reserve(g.batch * g.gates());
    c_ = this->Reserve(g.batch * g.hidden);
    product_ = this->StateProduct(g.gates());
  }

  size_t retained_bytes() const override {
    return Base::retained_bytes() + product_.retained_bytes();
  }

 protected:
  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    const RecurrentGeometry& g = this->geometry_;
    this->LoadState(context, kRecurrentInitialC, d, this->Values(context, c_));
    return product_.Pack(Input<S>(context, kRecurrentR) + d * g.gates() * g.hidden, d,
                         context.workspace);
  }

  absl::Status Step(const KernelContext& context, int64_t d, int64_t step) override {
    const RecurrentGeometry& g = this->geometry_;
    S* const h = this->State(context);
    S* const c = this->Values(context, c_);
    S* const from_state = this->Values(context, from_state_);
    WEFT_RETURN_IF_ERROR(product_.Run(h, nullptr, from_state, context.workspace));
    const LstmCell<S> cell = CellOf(context, d);
    this->ForEachSample(2, [&](int64_t b) {
      const int64_t t = this->TimeOf(context, d, b, step);
      if (t >= 0) {
        StepLstm(cell, this->FromInput(context, t, b), from_state + b * g.gates(), c + b * g.hidden,
                 h + b * g.hidden, this->Kept(context, kGates, d, t, b));
        S* const kept_c = this->Kept(context, kCells, d, t, b);
        if (kept_c != nullptr) std::copy_n(c + b * g.hidden, g.hidden, kept_c);
      }
      this->Emit(context, d, b, step, t);
    });
    return absl::OkStatus();
  }

  void EndDirection(const KernelContext& context, int64_t d) override {
    this->StoreState(context, 2, d, this->Values(context, c_));
  }

 private:
  LstmCell<S> CellOf(const KernelContext& context, int64_t d) const {
    LstmCell<S> cell;
    cell.hidden = this->geometry_.hidden;
    cell.gate = activations_[3 * d];
    cell.candidate = activations_[3 * d + 1];
    cell.output = activations_[3 * d + 2];
    cell.clip = this->clip_;
    cell.couple = couple_;
    if (this->HasInput(kRecurrentP)) {
      cell.peepholes = Input<S>(context, kRecurrentP) + 3 * d * cell.hidden;
    }
    return cell;
  }

  const std::vector<Activation> activations_;
  const bool couple_;
  GateProduct<S> product_;
  size_t from_state_ = 0;
  size_t c_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLstm(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGeometryOf(context, 4);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Sigmoid", "Tanh", "Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kRecurrentR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<LstmKernel<decltype(zero)>>(context, geometry, activations);
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LSTM", DeviceKind::kCpu, Widened(PrepareLstm));

}  // namespace weft::cpu
