#include "ops/kernels/cpu/lstm_cell.h"

#include <algorithm>

#include "ops/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/lstm_cell.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// `lanes` elements from position i on, for sigmoid and tanh gates; Load and Store know how many.
template <class LoadFn, class StoreFn>
HWY_INLINE void StepStandard(const LstmCell<float>& cell, const float* from_input,
                             const float* from_state, int64_t i, float* c, float* h, LoadFn load,
                             StoreFn store) {
  const FloatTag d;
  const int64_t n = cell.hidden;
  const auto limit = [&](FloatVector x) HWY_ATTR {
    if (cell.clip <= 0) return x;
    return hn::Clamp(x, hn::Set(d, -cell.clip), hn::Set(d, cell.clip));
  };
  const auto argument = [&](int64_t gate) HWY_ATTR {
    return hn::Add(load(from_input + gate * n + i), load(from_state + gate * n + i));
  };
  const auto peep = [&](int64_t gate, FloatVector state, FloatVector x) HWY_ATTR {
    if (cell.peepholes == nullptr) return x;
    return hn::MulAdd(load(cell.peepholes + gate * n + i), state, x);
  };
  const FloatVector old = load(c + i);
  const FloatVector in = Sigmoid(d, limit(peep(0, old, argument(0))));
  const FloatVector forget =
      cell.couple ? hn::Sub(hn::Set(d, 1.0f), in) : Sigmoid(d, limit(peep(2, old, argument(2))));
  const FloatVector candidate = Tanh(d, limit(argument(3)));
  const FloatVector state = hn::MulAdd(forget, old, hn::Mul(in, candidate));
  const FloatVector out = Sigmoid(d, limit(peep(1, state, argument(1))));
  store(state, c + i);
  store(hn::Mul(out, Tanh(d, state)), h + i);
}

void StepStandardLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
                      float* c, float* h) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= cell.hidden; i += lanes) {
    StepStandard(
        cell, from_input, from_state, i, c, h,
        [&](const float* from) HWY_ATTR { return hn::LoadU(d, from); },
        [&](FloatVector value, float* to) HWY_ATTR { hn::StoreU(value, d, to); });
  }
  const size_t rest = static_cast<size_t>(cell.hidden - i);
  if (rest == 0) return;
  StepStandard(
      cell, from_input, from_state, i, c, h,
      [&](const float* from) HWY_ATTR { return LoadPart(d, from, rest); },
      [&](FloatVector value, float* to) HWY_ATTR { StorePart(d, value, to, rest); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(StepStandardLstm);

// Any activations, one element at a time.
template <typename S>
void StepAnyLstm(const LstmCell<S>& cell, const S* from_input, const S* from_state, S* c, S* h) {
  const int64_t n = cell.hidden;
  const auto limit = [&](double x) {
    return cell.clip > 0 ? std::clamp<double>(x, -cell.clip, cell.clip) : x;
  };
  for (int64_t i = 0; i < n; ++i) {
    const auto argument = [&](int64_t gate) {
      return static_cast<double>(from_input[gate * n + i]) + from_state[gate * n + i];
    };
    const auto peep = [&](int64_t gate, double state) {
      return cell.peepholes == nullptr ? 0.0 : cell.peepholes[gate * n + i] * state;
    };
    const double in = cell.gate(limit(argument(0) + peep(0, c[i])));
    const double forget = cell.couple ? 1 - in : cell.gate(limit(argument(2) + peep(2, c[i])));
    const double state = forget * c[i] + in * cell.candidate(limit(argument(3)));
    const double out = cell.gate(limit(argument(1) + peep(1, state)));
    c[i] = static_cast<S>(state);
    h[i] = static_cast<S>(out * cell.output(state));
  }
}

}  // namespace

void StepLstm(const LstmCell<double>& cell, const double* from_input, const double* from_state,
              double* c, double* h) {
  StepAnyLstm(cell, from_input, from_state, c, h);
}

void StepLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
              float* c, float* h) {
  if (!cell.standard()) return StepAnyLstm(cell, from_input, from_state, c, h);
  HWY_DYNAMIC_DISPATCH(StepStandardLstm)(cell, from_input, from_state, c, h);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
