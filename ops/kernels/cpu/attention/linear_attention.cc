// LinearAttention, step by step in float (float64: in double). Heads are shared among threads.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"

namespace weft::cpu {
namespace {

enum Inputs { kQuery, kKey, kValue, kPastState, kDecay, kBeta };

struct Recurrence {
  explicit Recurrence(const PrepareContext& context) {
    const Attributes& attributes = context.attributes();
    batch = context.InputShape(kQuery).dim(0);
    steps = context.InputShape(kQuery).dim(1);
    q_heads = attributes.Int("q_num_heads", 1);
    kv_heads = attributes.Int("kv_num_heads", 1);
    key_size = context.InputShape(kKey).dim(2) / kv_heads;
    value_size = context.InputShape(kValue).dim(2) / kv_heads;
    scale = attributes.Float("scale", 0.0f);
    if (scale == 0.0) scale = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(key_size, 1)));
    has_state = context.HasInput(kPastState);
    has_decay = context.HasInput(kDecay);
    has_beta = context.HasInput(kBeta);
    wants_state = context.HasOutput(1);
    decay_per_key = has_decay && context.InputShape(kDecay).dim(2) != kv_heads;
    beta_heads = has_beta ? context.InputShape(kBeta).dim(2) : 1;
  }

  int64_t batch, steps, q_heads, kv_heads, key_size, value_size, beta_heads;
  double scale;
  bool has_state, has_decay, has_beta, wants_state, decay_per_key;

  int64_t state_elements() const { return key_size * value_size; }
};

// One head of keys and values of one sample. T: of the tensors, S: of the states, C: of sums.
template <typename T, typename S, typename C>
class HeadRun {
 public:
  HeadRun(const Recurrence& r, const KernelContext& run, int64_t b, int64_t h, C* state, C* row)
      : r_(r), run_(run), b_(b), h_(h), state_(state), row_(row) {}

  void Run() {
    const int64_t at = (b_ * r_.kv_heads + h_) * r_.state_elements();
    for (int64_t i = 0; i < r_.state_elements(); ++i) {
      state_[i] = r_.has_state ? static_cast<C>(Load(Input<S>(run_, kPastState)[at + i])) : C{0};
    }
    for (int64_t t = 0; t < r_.steps; ++t) Step(b_ * r_.steps + t);
    if (!r_.wants_state) return;
    for (int64_t i = 0; i < r_.state_elements(); ++i) {
      Output<S>(run_, 1)[at + i] = Store<S>(static_cast<ComputeType<S>>(state_[i]));
    }
  }

 private:
  C At(int input, int64_t i) const { return static_cast<C>(Load(Input<T>(run_, input)[i])); }

  void Step(int64_t step) {
    const int64_t key = (step * r_.kv_heads + h_) * r_.key_size;
    const int64_t value = (step * r_.kv_heads + h_) * r_.value_size;
    if (r_.has_decay) Decay(step);
    for (int64_t m = 0; m < r_.value_size; ++m) row_[m] = At(kValue, value + m);
    if (r_.has_beta) Correct(step, key);
    for (int64_t d = 0; d < r_.key_size; ++d) {
      const C k = At(kKey, key + d);
      C* state = state_ + d * r_.value_size;
      for (int64_t m = 0; m < r_.value_size; ++m) state[m] += k * row_[m];
    }
    Read(step);
  }

  void Decay(int64_t step) {
    for (int64_t d = 0; d < r_.key_size; ++d) {
      const int64_t head = step * r_.kv_heads + h_;
      const C factor = std::exp(At(kDecay, r_.decay_per_key ? head * r_.key_size + d : head));
      C* state = state_ + d * r_.value_size;
      for (int64_t m = 0; m < r_.value_size; ++m) state[m] *= factor;
    }
  }

  // row = beta (row - state^T k)
  void Correct(int64_t step, int64_t key) {
    for (int64_t d = 0; d < r_.key_size; ++d) {
      const C k = At(kKey, key + d);
      const C* state = state_ + d * r_.value_size;
      for (int64_t m = 0; m < r_.value_size; ++m) row_[m] -= k * state[m];
    }
    const C beta = At(kBeta, r_.beta_heads == 1 ? step : step * r_.beta_heads + h_);
    for (int64_t m = 0; m < r_.value_size; ++m) row_[m] *= beta;
  }

  void Read(int64_t step) {
    const int64_t group = r_.q_heads / r_.kv_heads;
    for (int64_t q = h_ * group; q < (h_ + 1) * group; ++q) {
      std::fill(row_, row_ + r_.value_size, C{0});
      for (int64_t d = 0; d < r_.key_size; ++d) {
        const C factor = At(kQuery, (step * r_.q_heads + q) * r_.key_size + d);
        const C* state = state_ + d * r_.value_size;
        for (int64_t m = 0; m < r_.value_size; ++m) row_[m] += factor * state[m];
      }
      T* out = Output<T>(run_, 0) + (step * r_.q_heads + q) * r_.value_size;
      for (int64_t m = 0; m < r_.value_size; ++m) {
        out[m] = Store<T>(static_cast<ComputeType<T>>(static_cast<C>(r_.scale) * row_[m]));
      }
    }
  }

  const Recurrence& r_;
  const KernelContext& run_;
  const int64_t b_;
  const int64_t h_;
  C* const state_;
  C* const row_;
};

template <typename T, typename S>
std::unique_ptr<Kernel> MakeLinearAttention(const PrepareContext& context) {
  using C =
      std::conditional_t<std::is_same_v<T, double> || std::is_same_v<S, double>, double, float>;
  const Recurrence r(context);
  const int64_t heads = r.batch * r.kv_heads;
  // A state and a row for every head, whichever thread has it.
  const int64_t scratch = r.state_elements() + r.value_size;
  const double cost = 2.0 * static_cast<double>(r.steps * r.state_elements());
  return MakeKernel(
      [r, heads, scratch, cost, threads = context.threads()](const KernelContext& run) {
        ParallelFor(threads, heads, cost, 1, [&](int64_t begin, int64_t end) {
          for (int64_t head = begin; head < end; ++head) {
            C* state = static_cast<C*>(run.workspace) + head * scratch;
            HeadRun<T, S, C>(r, run, head / r.kv_heads, head % r.kv_heads, state,
                             state + r.state_elements())
                .Run();
          }
        });
        return absl::OkStatus();
      },
      heads * scratch * sizeof(C));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearAttention(const PrepareContext& context) {
  const DType dtype = context.InputDType(kQuery);
  const DType state = context.HasInput(kPastState) ? context.InputDType(kPastState) : dtype;
  return PrepareByDType(context, dtype, FloatTypes(), [&](auto element) {
    return PrepareByDType(
        context, state, FloatTypes(),
        [&](auto state_element) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          return MakeLinearAttention<decltype(element), decltype(state_element)>(context);
        });
  });
}

WEFT_REGISTER_KERNEL("", "LinearAttention", DeviceKind::kCpu, PrepareLinearAttention);

}  // namespace
}  // namespace weft::cpu
