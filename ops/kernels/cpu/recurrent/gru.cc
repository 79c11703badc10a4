// GRU and RNN.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/recurrent/recurrent.h"

namespace weft::cpu {
namespace {

enum Outputs { kY, kFinalH, kGates };

// Activates the values, and keeps of them in `kept` (if not null) what the gradient needs.
template <typename S>
void ActivateAndKeep(const Activation& activation, double clip, S* values, int64_t count, S* kept) {
  const bool activated = KeepsActivated(activation, clip);
  if (kept != nullptr && !activated) std::copy_n(values, count, kept);
  Activate(activation, clip, values, count);
  if (kept != nullptr && activated) std::copy_n(values, count, kept);
}

template <typename S>
class RnnKernel final : public RecurrentKernel<S> {
 public:
  using Base = RecurrentKernel<S>;

  // May throw dnnl::error. `activations`: one per direction.
  RnnKernel(const PrepareContext& context, const RecurrentGeometry& g,
            std::vector<Activation> activations)
      : Base(context, g, /*first_kept=*/kGates), activations_(std::move(activations)) {
    from_state_ = this->Reserve(g.batch * g.hidden);
    product_ = this->StateProduct(g.hidden);
  }

  size_t retained_bytes() const override {
    return Base::retained_bytes() + product_.retained_bytes();
  }

 protected:
  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    const int64_t n = this->geometry_.hidden;
    return product_.Pack(Input<S>(context, kRecurrentR) + d * n * n, d, context.workspace);
  }

  absl::Status Step(const KernelContext& context, int64_t d, int64_t step) override {
    const int64_t n = this->geometry_.hidden;
    S* const h = this->State(context);
    S* const from_state = this->Values(context, from_state_);
    WEFT_RETURN_IF_ERROR(product_.Run(h, nullptr, from_state, context.workspace));
    this->ForEachSample(10, [&](int64_t b) {
      const int64_t t = this->TimeOf(context, d, b, step);
      if (t >= 0) {
        const S* const from_input = this->FromInput(context, t, b);
        S* const own = h + b * n;
        for (int64_t i = 0; i < n; ++i) own[i] = from_input[i] + from_state[b * n + i];
        ActivateAndKeep(activations_[d], this->clip_, own, n, this->Kept(context, kGates, d, t, b));
      }
      this->Emit(context, d, b, step, t);
    });
    return absl::OkStatus();
  }

 private:
  const std::vector<Activation> activations_;
  GateProduct<S> product_;
  size_t from_state_ = 0;
};

// Gates in ONNX's order: update (z), reset (r), hidden (h).
template <typename S>
class GruKernel final : public RecurrentKernel<S> {
 public:
  using Base = RecurrentKernel<S>;

  // May throw dnnl::error. `activations`: two per direction.
  GruKernel(const PrepareContext& context, const RecurrentGeometry& g,
            std::vector<Activation> activations)
      : Base(context, g, /*first_kept=*/kGates),
        activations_(std::move(activations)),
        linear_(context.attributes().Int("linear_before_reset", 0) != 0) {
    const int64_t n = g.hidden;
    from_state_ = this->Reserve(g.batch * 3 * n);
    reset_ = this->Reserve(g.batch * n);
    candidate_ = this->Reserve(g.batch * n);
    if (linear_) {
      product_ = this->StateProduct(3 * n);
    } else {
      product_ = this->StateProduct(2 * n);
      candidate_product_ = this->StateProduct(n);
    }
  }

  size_t retained_bytes() const override {
    return Base::retained_bytes() + product_.retained_bytes() + candidate_product_.retained_bytes();
  }

 protected:
  int64_t GatesWithStateBias() const override { return linear_ ? 2 : 3; }

  absl::Status StartDirection(const KernelContext& context, int64_t d) override {
    const int64_t n = this->geometry_.hidden;
    const S* const r = Input<S>(context, kRecurrentR) + d * 3 * n * n;
    if (!linear_) {
      WEFT_RETURN_IF_ERROR(candidate_product_.Pack(r + 2 * n * n, d, context.workspace));
    }
    return product_.Pack(r, d, context.workspace);
  }

  absl::Status Step(const KernelContext& context, int64_t d, int64_t step) override {
    const int64_t n = this->geometry_.hidden;
    S* const h = this->State(context);
    WEFT_RETURN_IF_ERROR(
        product_.Run(h, nullptr, this->Values(context, from_state_), context.workspace));
    // The gates, and the state that the candidate sees.
    this->ForEachSample(10, [&](int64_t b) {
      const int64_t t = this->TimeOf(context, d, b, step);
      if (t >= 0) Gates(context, d, b, t);
    });
    S* const candidate = this->Values(context, candidate_);
    if (!linear_) {
      WEFT_RETURN_IF_ERROR(candidate_product_.Run(this->Values(context, reset_), nullptr, candidate,
                                                  context.workspace));
    }
    this->ForEachSample(10, [&](int64_t b) {
      const int64_t t = this->TimeOf(context, d, b, step);
      if (t >= 0) {
        const S* const from_input = this->FromInput(context, t, b) + 2 * n;
        const S* const z = GatesOf(context, b);
        S* const own = candidate + b * n;
        for (int64_t i = 0; i < n; ++i) own[i] += from_input[i];
        S* const kept = this->Kept(context, kGates, d, t, b);
        ActivateAndKeep(activations_[2 * d + 1], this->clip_, own, n,
                        kept == nullptr ? nullptr : kept + 2 * n);
        for (int64_t i = 0; i < n; ++i) {
          h[b * n + i] = (S(1) - z[i]) * own[i] + z[i] * h[b * n + i];
        }
      }
      this->Emit(context, d, b, step, t);
    });
    return absl::OkStatus();
  }

 private:
  // What came from the state, and in its place the gates z and r.
  S* GatesOf(const KernelContext& context, int64_t b) const {
    return this->Values(context, from_state_) + b * (linear_ ? 3 : 2) * this->geometry_.hidden;
  }

  void Gates(const KernelContext& context, int64_t d, int64_t b, int64_t t) const {
    const int64_t n = this->geometry_.hidden;
    const S* const from_input = this->FromInput(context, t, b);
    S* const gates = GatesOf(context, b);
    for (int64_t i = 0; i < 2 * n; ++i) gates[i] += from_input[i];
    S* const kept = this->Kept(context, kGates, d, t, b);
    ActivateAndKeep(activations_[2 * d], this->clip_, gates, 2 * n, kept);
    const S* const reset = gates + n;
    if (!linear_) {
      const S* const h = this->State(context) + b * n;
      S* const seen = this->Values(context, reset_) + b * n;
      for (int64_t i = 0; i < n; ++i) seen[i] = reset[i] * h[i];
      return;
    }
    const S* const bias =
        this->HasInput(kRecurrentB) ? Input<S>(context, kRecurrentB) + (6 * d + 5) * n : nullptr;
    S* const candidate = this->Values(context, candidate_) + b * n;
    for (int64_t i = 0; i < n; ++i) {
      const S seen = gates[2 * n + i] + (bias == nullptr ? S(0) : bias[i]);
      if (kept != nullptr) kept[3 * n + i] = seen;
      candidate[i] = reset[i] * seen;
    }
  }

  const std::vector<Activation> activations_;
  const bool linear_;
  GateProduct<S> product_;
  GateProduct<S> candidate_product_;
  size_t from_state_ = 0;
  size_t reset_ = 0;
  size_t candidate_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRnn(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGeometryOf(context, 1);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kRecurrentR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<RnnKernel<decltype(zero)>>(context, geometry, activations);
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGru(const PrepareContext& context) {
  const RecurrentGeometry geometry = RecurrentGeometryOf(context, 3);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ActivationsOf(context, {"Sigmoid", "Tanh"}, geometry.directions));
  return PrepareRecurrent(
      context, kRecurrentR, [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<GruKernel<decltype(zero)>>(context, geometry, activations);
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "RNN", DeviceKind::kCpu, Widened(PrepareRnn));
WEFT_REGISTER_KERNEL("", "GRU", DeviceKind::kCpu, Widened(PrepareGru));

}  // namespace weft::cpu
