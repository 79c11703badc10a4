#include "ops/kernels/cpu/recurrent/lstm_cell.h"

#include <algorithm>
#include <cmath>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/recurrent/lstm_cell.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// `lanes` elements from position i on, for sigmoid and tanh gates; Load and Store know how many.
template <class LoadFn, class StoreFn>
HWY_INLINE void StepStandard(const LstmCell<float>& cell, const float* from_input,
                             const float* from_state, int64_t i, float* c, float* h, float* kept,
                             LoadFn load, StoreFn store) {
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
  if (kept == nullptr) return;
  store(in, kept + i);
  store(out, kept + n + i);
  store(forget, kept + 2 * n + i);
  store(candidate, kept + 3 * n + i);
}

// Calls step(i, load, store) for vectors of positions i of [0, n).
template <class StepFn>
HWY_INLINE void ForVectorsOf(int64_t n, StepFn step) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    step(
        i, [&](const float* from) HWY_ATTR { return hn::LoadU(d, from); },
        [&](FloatVector value, float* to) HWY_ATTR { hn::StoreU(value, d, to); });
  }
  const size_t rest = static_cast<size_t>(n - i);
  if (rest == 0) return;
  step(
      i, [&](const float* from) HWY_ATTR { return LoadPart(d, from, rest); },
      [&](FloatVector value, float* to) HWY_ATTR { StorePart(d, value, to, rest); });
}

void StepStandardLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
                      float* c, float* h, float* kept) {
  ForVectorsOf(cell.hidden, [&](int64_t i, auto load, auto store) HWY_ATTR {
    StepStandard(cell, from_input, from_state, i, c, h, kept, load, store);
  });
}

void StepStandardLstmBack(const LstmCell<float>& cell, const float* kept, const float* c,
                          const float* previous_c, const float* dh, float* dc, float* dgates) {
  const FloatTag d;
  const int64_t n = cell.hidden;
  const FloatVector one = hn::Set(d, 1.0f);
  // gradient * gate * (1 - gate)
  const auto through_sigmoid = [&](FloatVector gradient, FloatVector gate) HWY_ATTR {
    return hn::Mul(hn::Mul(gradient, gate), hn::Sub(one, gate));
  };
  ForVectorsOf(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const auto peep = [&](int64_t gate, FloatVector gradient, FloatVector sum) HWY_ATTR {
      if (cell.peepholes == nullptr) return sum;
      return hn::MulAdd(load(cell.peepholes + gate * n + i), gradient, sum);
    };
    const FloatVector in = load(kept + i);
    const FloatVector out = load(kept + n + i);
    const FloatVector forget = load(kept + 2 * n + i);
    const FloatVector candidate = load(kept + 3 * n + i);
    const FloatVector old = previous_c == nullptr ? hn::Zero(d) : load(previous_c + i);
    const FloatVector shown = Tanh(d, load(c + i));
    const FloatVector arriving = load(dh + i);
    const FloatVector dout = through_sigmoid(hn::Mul(arriving, shown), out);
    const FloatVector slope = hn::NegMulAdd(shown, shown, one);
    FloatVector dstate = hn::MulAdd(hn::Mul(arriving, out), slope, load(dc + i));
    dstate = peep(1, dout, dstate);
    FloatVector din_value = hn::Mul(dstate, candidate);
    FloatVector dforget = hn::Zero(d);
    if (cell.couple) {
      din_value = hn::NegMulAdd(dstate, old, din_value);
    } else {
      dforget = through_sigmoid(hn::Mul(dstate, old), forget);
    }
    const FloatVector din = through_sigmoid(din_value, in);
    store(din, dgates + i);
    store(dout, dgates + n + i);
    store(dforget, dgates + 2 * n + i);
    store(hn::Mul(hn::Mul(dstate, in), hn::NegMulAdd(candidate, candidate, one)),
          dgates + 3 * n + i);
    store(peep(2, dforget, peep(0, din, hn::Mul(dstate, forget))), dc + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(StepStandardLstm);
HWY_EXPORT(StepStandardLstmBack);

// Any activations, one element at a time.
template <typename S>
void StepAnyLstm(const LstmCell<S>& cell, const S* from_input, const S* from_state, S* c, S* h,
                 S* kept) {
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
    const double to_in = argument(0) + peep(0, c[i]);
    const double to_forget = argument(2) + peep(2, c[i]);
    const double to_candidate = argument(3);
    const double in = cell.gate(limit(to_in));
    const double forget = cell.couple ? 1 - in : cell.gate(limit(to_forget));
    const double candidate = cell.candidate(limit(to_candidate));
    const double state = forget * c[i] + in * candidate;
    const double to_out = argument(1) + peep(1, state);
    const double out = cell.gate(limit(to_out));
    c[i] = static_cast<S>(state);
    h[i] = static_cast<S>(out * cell.output(state));
    if (kept == nullptr) continue;
    const bool activated = cell.keeps_activated();
    kept[i] = static_cast<S>(activated ? in : to_in);
    kept[n + i] = static_cast<S>(activated ? out : to_out);
    kept[2 * n + i] = static_cast<S>(activated ? forget : to_forget);
    kept[3 * n + i] = static_cast<S>(activated ? candidate : to_candidate);
  }
}

// What a gate became, and its slope there, from what was kept of it.
struct Gate {
  double value = 0;
  double slope = 0;
};

template <typename S>
Gate GateOf(const LstmCell<S>& cell, const Activation& activation, double kept) {
  if (cell.keeps_activated()) {
    const bool is_tanh = activation.kind == ActivationKind::kTanh;
    return {kept, is_tanh ? 1 - kept * kept : kept * (1 - kept)};
  }
  const bool limited = cell.clip > 0 && std::abs(kept) > cell.clip;
  const double argument = limited ? std::copysign(cell.clip, kept) : kept;
  return {activation(argument), limited ? 0 : activation.Slope(argument)};
}

template <typename S>
void StepAnyLstmBack(const LstmCell<S>& cell, const S* kept, const S* c, const S* previous_c,
                     const S* dh, S* dc, S* dgates) {
  const int64_t n = cell.hidden;
  for (int64_t i = 0; i < n; ++i) {
    const auto peephole = [&](int64_t gate) {
      return cell.peepholes == nullptr ? 0.0 : static_cast<double>(cell.peepholes[gate * n + i]);
    };
    const Gate in = GateOf(cell, cell.gate, kept[i]);
    const Gate out = GateOf(cell, cell.gate, kept[n + i]);
    const Gate forget =
        cell.couple ? Gate{1 - in.value, 0} : GateOf(cell, cell.gate, kept[2 * n + i]);
    const Gate candidate = GateOf(cell, cell.candidate, kept[3 * n + i]);
    const double old = previous_c == nullptr ? 0 : static_cast<double>(previous_c[i]);
    const double dout = dh[i] * cell.output(c[i]) * out.slope;
    const double dstate = dc[i] + dh[i] * out.value * cell.output.Slope(c[i]) + peephole(1) * dout;
    const double coupled = cell.couple ? old : 0;
    const double din = dstate * (candidate.value - coupled) * in.slope;
    const double dforget = dstate * old * forget.slope;
    dgates[i] = static_cast<S>(din);
    dgates[n + i] = static_cast<S>(dout);
    dgates[2 * n + i] = static_cast<S>(dforget);
    dgates[3 * n + i] = static_cast<S>(dstate * in.value * candidate.slope);
    dc[i] = static_cast<S>(dstate * forget.value + peephole(0) * din + peephole(2) * dforget);
  }
}

}  // namespace

void StepLstm(const LstmCell<double>& cell, const double* from_input, const double* from_state,
              double* c, double* h, double* kept) {
  StepAnyLstm(cell, from_input, from_state, c, h, kept);
}

void StepLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
              float* c, float* h, float* kept) {
  const bool plain = cell.standard() && (kept == nullptr || cell.keeps_activated());
  if (!plain) return StepAnyLstm(cell, from_input, from_state, c, h, kept);
  HWY_DYNAMIC_DISPATCH(StepStandardLstm)(cell, from_input, from_state, c, h, kept);
}

void StepLstmBack(const LstmCell<double>& cell, const double* kept, const double* c,
                  const double* previous_c, const double* dh, double* dc, double* dgates) {
  StepAnyLstmBack(cell, kept, c, previous_c, dh, dc, dgates);
}

void StepLstmBack(const LstmCell<float>& cell, const float* kept, const float* c,
                  const float* previous_c, const float* dh, float* dc, float* dgates) {
  if (!cell.keeps_activated()) {
    return StepAnyLstmBack(cell, kept, c, previous_c, dh, dc, dgates);
  }
  HWY_DYNAMIC_DISPATCH(StepStandardLstmBack)(cell, kept, c, previous_c, dh, dc, dgates);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
