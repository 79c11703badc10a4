// LinearAttentionGrad(dY, dpresent, query, key, value, past_state, decay, beta) -> dquery, dkey,
// dvalue, dpast_state, ddecay, dbeta. A head at a time: forward, keeping the state that each step
// finds after its decay, then backward. With S that state, S' the one after the step,
//   u = v - S^T k (delta rules, else v), w = beta u (or u), S' = S + k w^T, y = scale S'^T q.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"

namespace weft::cpu {
namespace {

enum Inputs { kDy, kDpresent, kQuery, kKey, kValue, kPastState, kDecay, kBeta, kInputs };
enum Outputs { kDquery, kDkey, kDvalue, kDpast, kDdecay, kDbeta, kOutputs };

struct Plan {
  int64_t batch = 0;
  int64_t steps = 0;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t key_size = 0;
  int64_t value_size = 0;
  int64_t decays = 0;  // of a head: one, or one for each of its keys
  int64_t betas = 1;   // of a step: one, or one for each head
  double scale = 1;
  std::array<bool, kInputs> has{};
  std::array<bool, kOutputs> wants{};

  int64_t state() const { return key_size * value_size; }
  int64_t heads() const { return batch * kv_heads; }
};

Plan MakePlan(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  Plan plan;
  plan.batch = context.InputShape(kQuery).dim(0);
  plan.steps = context.InputShape(kQuery).dim(1);
  plan.q_heads = attributes.Int("q_num_heads", 1);
  plan.kv_heads = attributes.Int("kv_num_heads", 1);
  plan.key_size = context.InputShape(kKey).dim(2) / plan.kv_heads;
  plan.value_size = context.InputShape(kValue).dim(2) / plan.kv_heads;
  plan.scale = attributes.Float("scale", 0.0f);
  if (plan.scale == 0) {
    plan.scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(plan.key_size, 1)));
  }
  for (int i = 0; i < kInputs; ++i) plan.has[i] = context.HasInput(i);
  for (int i = 0; i < kOutputs; ++i) plan.wants[i] = context.HasOutput(i);
  if (plan.has[kDecay]) plan.decays = context.InputShape(kDecay).dim(2) / plan.kv_heads;
  if (plan.has[kBeta]) plan.betas = context.InputShape(kBeta).dim(2);
  return plan;
}

// One head of keys and values of one sample.
template <typename T>
class HeadGradient {
 public:
  // `states` [steps, key size, value size]; `ds` a state; `rows` three times a value.
  HeadGradient(const Plan& plan, const KernelContext& run, int64_t head, T* states, T* ds, T* rows)
      : plan_(plan),
        run_(run),
        b_(head / plan.kv_heads),
        h_(head % plan.kv_heads),
        states_(states),
        ds_(ds),
        u_(rows),
        w_(rows + plan.value_size),
        dw_(rows + 2 * plan.value_size) {}

  // `dbeta`: [batch, steps, kv_heads], where betas have a gradient.
  void Run(T* dbeta) {
    const int64_t at = (b_ * plan_.kv_heads + h_) * plan_.state();
    for (int64_t t = 0; t < plan_.steps; ++t) Forward(t, at);
    for (int64_t i = 0; i < plan_.state(); ++i) {
      ds_[i] = plan_.has[kDpresent] ? Input<T>(run_, kDpresent)[at + i] : T(0);
    }
    for (int64_t t = plan_.steps - 1; t >= 0; --t) Backward(t, dbeta);
    if (plan_.wants[kDpast]) std::copy_n(ds_, plan_.state(), Output<T>(run_, kDpast) + at);
  }

 private:
  int64_t Step(int64_t t) const { return b_ * plan_.steps + t; }
  int64_t KeyAt(int64_t t) const { return (Step(t) * plan_.kv_heads + h_) * plan_.key_size; }
  int64_t ValueAt(int64_t t) const { return (Step(t) * plan_.kv_heads + h_) * plan_.value_size; }
  T* StateAt(int64_t t) const { return states_ + t * plan_.state(); }
  const T* Key(int64_t t) const { return Input<T>(run_, kKey) + KeyAt(t); }
  T Beta(int64_t t) const {
    return Input<T>(run_, kBeta)[plan_.betas == 1 ? Step(t) : Step(t) * plan_.betas + h_];
  }
  int64_t DecayAt(int64_t t, int64_t d) const {
    return (Step(t) * plan_.kv_heads + h_) * plan_.decays + (plan_.decays == 1 ? 0 : d);
  }

  // u and w of a step from the state it finds.
  void Corrections(int64_t t) {
    const T* const value = Input<T>(run_, kValue) + ValueAt(t);
    std::copy_n(value, plan_.value_size, u_);
    for (int64_t d = 0; plan_.has[kBeta] && d < plan_.key_size; ++d) {
      const T* const row = StateAt(t) + d * plan_.value_size;
      for (int64_t m = 0; m < plan_.value_size; ++m) u_[m] -= Key(t)[d] * row[m];
    }
    const T beta = plan_.has[kBeta] ? Beta(t) : T(1);
    for (int64_t m = 0; m < plan_.value_size; ++m) w_[m] = beta * u_[m];
  }

  // The state that step t finds: that after the step before (or the past one), decayed.
  void Forward(int64_t t, int64_t past) {
    T* const state = StateAt(t);
    if (t == 0) {
      for (int64_t i = 0; i < plan_.state(); ++i) {
        state[i] = plan_.has[kPastState] ? Input<T>(run_, kPastState)[past + i] : T(0);
      }
    } else {
      Corrections(t - 1);
      for (int64_t d = 0; d < plan_.key_size; ++d) {
        const int64_t row = d * plan_.value_size;
        for (int64_t m = 0; m < plan_.value_size; ++m) {
          state[row + m] = StateAt(t - 1)[row + m] + Key(t - 1)[d] * w_[m];
        }
      }
    }
    for (int64_t d = 0; plan_.has[kDecay] && d < plan_.key_size; ++d) Decay(t, d, state);
  }

  void Decay(int64_t t, int64_t d, T* state) const {
    const T factor = std::exp(Input<T>(run_, kDecay)[DecayAt(t, d)]);
    T* const row = state + d * plan_.value_size;
    for (int64_t m = 0; m < plan_.value_size; ++m) row[m] *= factor;
  }

  void Backward(int64_t t, T* dbeta) {
    Corrections(t);
    if (plan_.has[kDy]) ReadBackward(t);
    std::fill_n(dw_, plan_.value_size, T(0));
    for (int64_t d = 0; d < plan_.key_size; ++d) {
      const T* const row = ds_ + d * plan_.value_size;
      T sum = 0;
      for (int64_t m = 0; m < plan_.value_size; ++m) {
        dw_[m] += Key(t)[d] * row[m];
        sum += row[m] * w_[m];
      }
      if (plan_.wants[kDkey]) Output<T>(run_, kDkey)[KeyAt(t) + d] = sum;
    }
    if (plan_.has[kBeta]) CorrectBackward(t, dbeta);
    if (plan_.wants[kDvalue]) {
      std::copy_n(dw_, plan_.value_size, Output<T>(run_, kDvalue) + ValueAt(t));
    }
    if (plan_.has[kDecay]) DecayBackward(t);
  }

  // y = scale S'^T q of the queries that share this head.
  void ReadBackward(int64_t t) {
    const int64_t group = plan_.q_heads / plan_.kv_heads;
    const T scale = static_cast<T>(plan_.scale);
    for (int64_t q = h_ * group; q < (h_ + 1) * group; ++q) {
      const int64_t query = (Step(t) * plan_.q_heads + q) * plan_.key_size;
      const T* const dy = Input<T>(run_, kDy) + (Step(t) * plan_.q_heads + q) * plan_.value_size;
      for (int64_t d = 0; d < plan_.key_size; ++d) {
        const T* const state = StateAt(t) + d * plan_.value_size;
        T* const ds = ds_ + d * plan_.value_size;
        const T factor = scale * Input<T>(run_, kQuery)[query + d];
        T sum = 0;
        for (int64_t m = 0; m < plan_.value_size; ++m) {
          sum += (state[m] + Key(t)[d] * w_[m]) * dy[m];
          ds[m] += factor * dy[m];
        }
        if (plan_.wants[kDquery]) Output<T>(run_, kDquery)[query + d] = scale * sum;
      }
    }
  }

  // dw becomes du = beta dw, which the state and the key had a part in.
  void CorrectBackward(int64_t t, T* dbeta) {
    T sum = 0;
    for (int64_t m = 0; m < plan_.value_size; ++m) {
      sum += dw_[m] * u_[m];
      dw_[m] *= Beta(t);
    }
    if (plan_.wants[kDbeta]) dbeta[Step(t) * plan_.kv_heads + h_] = sum;
    for (int64_t d = 0; d < plan_.key_size; ++d) {
      const T* const state = StateAt(t) + d * plan_.value_size;
      T* const ds = ds_ + d * plan_.value_size;
      T part = 0;
      for (int64_t m = 0; m < plan_.value_size; ++m) {
        part += state[m] * dw_[m];
        ds[m] -= Key(t)[d] * dw_[m];
      }
      if (plan_.wants[kDkey]) Output<T>(run_, kDkey)[KeyAt(t) + d] -= part;
    }
  }

  void DecayBackward(int64_t t) {
    T whole = 0;
    for (int64_t d = 0; d < plan_.key_size; ++d) {
      const T* const state = StateAt(t) + d * plan_.value_size;
      T sum = 0;
      for (int64_t m = 0; m < plan_.value_size; ++m) {
        sum += ds_[d * plan_.value_size + m] * state[m];
      }
      whole += sum;
      if (plan_.wants[kDdecay] && plan_.decays != 1) {
        Output<T>(run_, kDdecay)[DecayAt(t, d)] = sum;
      }
      Decay(t, d, ds_);
    }
    if (plan_.wants[kDdecay] && plan_.decays == 1) {
      Output<T>(run_, kDdecay)[DecayAt(t, 0)] = whole;
    }
  }

  const Plan& plan_;
  const KernelContext& run_;
  const int64_t b_;
  const int64_t h_;
  T* const states_;
  T* const ds_;
  T* const u_;
  T* const w_;
  T* const dw_;
};

template <typename T>
std::unique_ptr<Kernel> MakeLinearAttentionGrad(const Plan& plan, int threads) {
  const int64_t slots = std::clamp<int64_t>(threads, 1, std::max<int64_t>(plan.heads(), 1));
  const int64_t scratch = (plan.steps + 1) * plan.state() + 3 * plan.value_size;
  const double cost = 8.0 * static_cast<double>(plan.steps * plan.state()) *
                      static_cast<double>((plan.heads() + slots - 1) / slots);
  WorkspaceLayout layout;
  const size_t betas = layout.Add(plan.batch * plan.steps * plan.kv_heads * sizeof(T));
  const size_t slot = layout.Add(slots * scratch * sizeof(T));
  return MakeKernel(
      [=](const KernelContext& run) {
        T* const dbeta = static_cast<T*>(At(run.workspace, betas));
        if (plan.wants[kDquery] && !plan.has[kDy]) {
          const int64_t rows = plan.batch * plan.steps * plan.q_heads;
          std::fill_n(Output<T>(run, kDquery), rows * plan.key_size, T(0));
        }
        // A slot has its heads one after the other, so that there is one scratch for each.
        ParallelFor(threads, slots, cost, 1, [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s) {
            T* const states = static_cast<T*>(At(run.workspace, slot)) + s * scratch;
            T* const ds = states + plan.steps * plan.state();
            for (int64_t head = s; head < plan.heads(); head += slots) {
              HeadGradient<T>(plan, run, head, states, ds, ds + plan.state()).Run(dbeta);
            }
          }
        });
        if (!plan.wants[kDbeta]) return absl::OkStatus();
        const int64_t shared = plan.kv_heads / plan.betas;
        for (int64_t i = 0; i < plan.batch * plan.steps * plan.betas; ++i) {
          T sum = 0;
          for (int64_t k = 0; k < shared; ++k) sum += dbeta[i * shared + k];
          Output<T>(run, kDbeta)[i] = sum;
        }
        return absl::OkStatus();
      },
      layout.total());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearAttentionGrad(const PrepareContext& context) {
  const Plan plan = MakePlan(context);
  return PrepareByDType(context, context.InputDType(kQuery), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeLinearAttentionGrad<decltype(zero)>(plan, context.threads());
                        });
}

WEFT_REGISTER_KERNEL("ai.weft", "LinearAttentionGrad", DeviceKind::kCpu,
                     Widened(PrepareLinearAttentionGrad));

}  // namespace
}  // namespace weft::cpu
