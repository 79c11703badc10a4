// GruGrad: the steps of GRU, backward.
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/recurrent/recurrent_grad.h"

namespace weft::cpu {
namespace {

// With z, r and n the gates, h = (1 - z) n + z h'. The candidate n sees the state before the step
// as R (r h'), or, linear before reset, as r (R h' + bias).
template <typename S>
class GruGradKernel final : public RecurrentGradKernel<S> {
 public:
  using Base = RecurrentGradKernel<S>;

  // May throw dnnl::error. `activations`: two per direction.
  GruGradKernel(const PrepareContext& context, const RecurrentGeometry& g,
                std::vector<Activation> activations)
      : Base(context, g, /*adds=*/true),
        activations_(std::move(activations)),
        linear_(context.attributes().Int("linear_before_reset", 0) != 0) {
    const int64_t n = g.hidden;
    const GateProductOptions options{.stored = Stored::kPlain, .threads = this->threads_};
    from_state_ = this->Reserve(g.batch * (linear_ ? 3 : 2) * n);
    if (linear_) {
      product_ = GateProduct<S>(g.batch, n, 3 * n, options, this->layout_);
    } else {
      candidate_ = this->Reserve(g.batch * n);
      dseen_ = this->Reserve(g.batch * n);
      product_ = GateProduct<S>(g.batch, n, 2 * n, options, this->layout_);
      candidate_product_ = GateProduct<S>(g.batch, n, n, options, this->layout_);
    }
    widths_[kGradOfGates] = 3 * n;
    widths_[kGradPreviousH] = n;
    widths_[kGradFromState] = 3 * n;
    widths_[kGradSeen] = n;
  }

 protected:
  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    const RecurrentGeometry& g = this->geometry_;
    const int64_t n = g.hidden;
    // Samples that end early are not computed.
    std::fill_n(this->Values(context, from_state_), g.batch * (linear_ ? 3 : 2) * n, S(0));
    const S* const r = Input<S>(context, kGradR) + d * 3 * n * n;
    if (!linear_) {
      std::fill_n(this->Values(context, candidate_), g.batch * n, S(0));
      WEFT_RETURN_IF_ERROR(candidate_product_.Pack(r + 2 * n * n, d, context.workspace));
    }
    return product_.Pack(r, d, context.workspace);
  }

  absl::Status Step(const KernelContext& context, int64_t d, int64_t step) override {
    this->ForEachSample(context, d, step, widths_, [&](int64_t b, int64_t t) {
      UpdateAndCandidate(context, d, step, t, b);
      if (linear_) Reset(context, d, step, t, b);
    });
    if (!linear_) {
      WEFT_RETURN_IF_ERROR(candidate_product_.Run(this->Values(context, candidate_), nullptr,
                                                  this->Values(context, dseen_),
                                                  context.workspace));
      for (int64_t b = 0; b < this->geometry_.batch; ++b) {
        if (step >= this->LengthOf(context, b)) continue;
        Reset(context, d, step, this->TimeOf(context, d, b, step), b);
      }
    }
    return product_.Run(this->Values(context, from_state_), nullptr, this->ThroughR(context),
                        context.workspace);
  }

 private:
  const S* Gates(const KernelContext& context, int64_t d, int64_t t, int64_t b) const {
    return this->InputRow(context, kGradGates, (linear_ ? 4 : 3) * this->geometry_.hidden, d, t, b);
  }
  S* FromState(const KernelContext& context, int64_t b) const {
    return this->Values(context, from_state_) + b * (linear_ ? 3 : 2) * this->geometry_.hidden;
  }

  // The gradients of z's and n's arguments; leaves in Dh what goes past the gates.
  void UpdateAndCandidate(const KernelContext& context, int64_t d, int64_t step, int64_t t,
                          int64_t b) const {
    const int64_t n = this->geometry_.hidden;
    const S* const kept = Gates(context, d, t, b);
    const S* const previous = this->PreviousH(context, d, b, step);
    S* const dh = this->Dh(context, b);
    S* const dgates = this->OutputRow(context, kGradOfGates, 3 * n, d, t, b);
    for (int64_t i = 0; i < n; ++i) {
      const S z = ValueOf(activations_[2 * d], this->clip_, kept[i]);
      const S candidate = ValueOf(activations_[2 * d + 1], this->clip_, kept[2 * n + i]);
      const S old = previous == nullptr ? S(0) : previous[i];
      dgates[i] = dh[i] * (old - candidate);
      dgates[2 * n + i] = dh[i] * (S(1) - z);
      dh[i] *= z;
    }
    MultiplyBySlopes(activations_[2 * d], this->clip_, kept, n, dgates);
    MultiplyBySlopes(activations_[2 * d + 1], this->clip_, kept + 2 * n, n, dgates + 2 * n);
    std::copy_n(dgates, n, FromState(context, b));
    if (!linear_) {
      std::copy_n(dgates + 2 * n, n, this->Values(context, candidate_) + b * n);
    }
  }

  // The gradients of r's arguments, and what the candidate leaves for the state before the step.
  void Reset(const KernelContext& context, int64_t d, int64_t step, int64_t t, int64_t b) const {
    const int64_t n = this->geometry_.hidden;
    const S* const kept = Gates(context, d, t, b);
    const S* const previous = this->PreviousH(context, d, b, step);
    S* const dgates = this->OutputRow(context, kGradOfGates, 3 * n, d, t, b);
    S* const from_state = FromState(context, b);
    S* const dh = this->Dh(context, b);
    S* const seen = linear_ ? nullptr : this->OutputRow(context, kGradSeen, n, d, t, b);
    for (int64_t i = 0; i < n; ++i) {
      const S reset = ValueOf(activations_[2 * d], this->clip_, kept[n + i]);
      if (linear_) {
        dgates[n + i] = dgates[2 * n + i] * kept[3 * n + i];
        from_state[2 * n + i] = dgates[2 * n + i] * reset;
        continue;
      }
      const S dseen = this->Values(context, dseen_)[b * n + i];
      const S old = previous == nullptr ? S(0) : previous[i];
      dgates[n + i] = dseen * old;
      dh[i] += dseen * reset;
      if (seen != nullptr) seen[i] = reset * old;
    }
    MultiplyBySlopes(activations_[2 * d], this->clip_, kept + n, n, dgates + n);
    std::copy_n(dgates + n, n, from_state + n);
    if (linear_) {
      this->CopyOrClear(from_state, 3 * n,
                        this->OutputRow(context, kGradFromState, 3 * n, d, t, b));
    }
  }

  const std::vector<Activation> activations_;
  const bool linear_;
  int64_t widths_[kRecurrentGradOutputs] = {};
  GateProduct<S> product_;
  GateProduct<S> candidate_product_;
  size_t from_state_ = 0;  // [batch, 2 or 3, hidden], of what came through R
  size_t candidate_ = 0;   // [batch, hidden], of the candidate's argument
  size_t dseen_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGruGrad(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGradGeometryOf(context, 3);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Sigmoid", "Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kGradR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<GruGradKernel<decltype(zero)>>(context, geometry, activations);
      });
}

}  // namespace

WEFT_REGISTER_KERNEL(kWeftDomain, "GruGrad", DeviceKind::kCpu, Widened(PrepareGruGrad));

}  // namespace weft::cpu
