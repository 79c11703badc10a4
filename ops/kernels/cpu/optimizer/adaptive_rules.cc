#include "ops/kernels/cpu/optimizer/adaptive_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/adaptive_rules.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, i) for vectors, and for the rest with one lane: the same operations on each
// element.
template <typename T, typename Body>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, const Body& body) {
  const hn::ScalableTag<T> vector;
  const hn::CappedTag<T, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(vector));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(vector, i);
  for (; i < end; ++i) body(single, i);
}

template <typename T>
void Loop(const AdagradRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, a.w + i);
    const auto g = hn::MulAdd(hn::Set(d, rule.l2_decay), w, hn::LoadU(d, a.g + i));
    const auto sum = hn::MulAdd(g, g, hn::LoadU(d, a.state[0] + i));
    const auto root = hn::Add(hn::Sqrt(sum), hn::Set(d, rule.epsilon));
    hn::StoreU(sum, d, a.new_state[0] + i);
    hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, rule.step_size), g), root)), d, a.new_w + i);
  });
}

template <typename T>
void Loop(const AdadeltaRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto epsilon = hn::Set(d, rule.epsilon);
    const auto rho = hn::Set(d, rule.rho);
    const auto share = hn::Set(d, rule.square_share);
    const auto w = hn::LoadU(d, a.w + i);
    const auto g = hn::MulAdd(hn::Set(d, rule.l2_decay), w, hn::LoadU(d, a.g + i));
    const auto square =
        hn::MulAdd(rho, hn::LoadU(d, a.state[0] + i), hn::Mul(hn::Mul(share, g), g));
    const auto moved = hn::LoadU(d, a.state[1] + i);
    const auto ratio =
        hn::Div(hn::Sqrt(hn::Add(moved, epsilon)), hn::Sqrt(hn::Add(square, epsilon)));
    const auto delta = hn::Mul(ratio, g);
    hn::StoreU(square, d, a.new_state[0] + i);
    hn::StoreU(hn::MulAdd(rho, moved, hn::Mul(hn::Mul(share, delta), delta)), d,
               a.new_state[1] + i);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, rule.learning_rate), delta, w), d, a.new_w + i);
  });
}

// What of the rule applies is known before the loop.
template <typename T, bool kCentered, bool kVelocity>
void RmspropLoop(const RmspropRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin,
                 int64_t end) {
  constexpr int kVelocitySlot = kCentered ? 2 : 1;
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto alpha = hn::Set(d, rule.alpha);
    const auto share = hn::Set(d, rule.square_share);
    const auto w = hn::LoadU(d, a.w + i);
    const auto g = hn::MulAdd(hn::Set(d, rule.l2_decay), w, hn::LoadU(d, a.g + i));
    const auto square =
        hn::MulAdd(alpha, hn::LoadU(d, a.state[0] + i), hn::Mul(hn::Mul(share, g), g));
    hn::StoreU(square, d, a.new_state[0] + i);
    auto spread = square;
    if constexpr (kCentered) {
      const auto mean = hn::MulAdd(alpha, hn::LoadU(d, a.state[1] + i), hn::Mul(share, g));
      hn::StoreU(mean, d, a.new_state[1] + i);
      spread = hn::NegMulAdd(mean, mean, square);
    }
    auto direction = hn::Div(g, hn::Add(hn::Sqrt(spread), hn::Set(d, rule.epsilon)));
    if constexpr (kVelocity) {
      direction = hn::MulAdd(hn::Set(d, rule.momentum), hn::LoadU(d, a.state[kVelocitySlot] + i),
                             direction);
      hn::StoreU(direction, d, a.new_state[kVelocitySlot] + i);
    }
    hn::StoreU(hn::NegMulAdd(hn::Set(d, rule.learning_rate), direction, w), d, a.new_w + i);
  });
}

template <typename T>
void Loop(const RmspropRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  if (rule.centered && rule.has_velocity) return RmspropLoop<T, true, true>(rule, a, begin, end);
  if (rule.centered) return RmspropLoop<T, true, false>(rule, a, begin, end);
  if (rule.has_velocity) return RmspropLoop<T, false, true>(rule, a, begin, end);
  RmspropLoop<T, false, false>(rule, a, begin, end);
}

template <typename T>
void Loop(const LionRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto zero = hn::Zero(d);
    const auto rate = hn::Set(d, rule.learning_rate);
    const auto g = hn::LoadU(d, a.g + i);
    const auto m = hn::LoadU(d, a.state[0] + i);
    const auto mixed =
        hn::MulAdd(hn::Set(d, rule.beta1), m, hn::Mul(hn::Set(d, rule.direction_share), g));
    // Of zero, zero; of NaN, NaN: what is neither above nor below passes.
    const auto below = hn::IfThenElse(hn::Lt(mixed, zero), hn::Neg(rate), hn::Mul(rate, mixed));
    const auto step = hn::IfThenElse(hn::Gt(mixed, zero), rate, below);
    const auto w = hn::Mul(hn::Set(d, rule.weight_scale), hn::LoadU(d, a.w + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, rule.beta2), m, hn::Mul(hn::Set(d, rule.gradient_share), g)),
               d, a.new_state[0] + i);
    hn::StoreU(hn::Sub(w, step), d, a.new_w + i);
  });
}

template <typename T>
void Loop(const LambRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, a.w + i);
    const auto g = hn::LoadU(d, a.g + i);
    const auto m = hn::MulAdd(hn::Set(d, rule.beta1), hn::LoadU(d, a.state[0] + i),
                              hn::Mul(hn::Set(d, rule.gradient_share), g));
    const auto v = hn::MulAdd(hn::Set(d, rule.beta2), hn::LoadU(d, a.state[1] + i),
                              hn::Mul(hn::Mul(hn::Set(d, rule.square_share), g), g));
    const auto root =
        hn::MulAdd(hn::Sqrt(v), hn::Set(d, rule.root_scale), hn::Set(d, rule.epsilon));
    const auto step = hn::Div(hn::Mul(hn::Set(d, rule.mean_scale), m), root);
    hn::StoreU(m, d, a.new_state[0] + i);
    hn::StoreU(v, d, a.new_state[1] + i);
    hn::StoreU(hn::MulAdd(hn::Set(d, rule.weight_decay), w, step), d, a.new_w + i);
  });
}

template <typename T>
void Loop(const EmaRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto weight = hn::Mul(hn::Set(d, rule.weight_share), hn::LoadU(d, a.g + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, rule.decay), hn::LoadU(d, a.w + i), weight), d, a.new_w + i);
  });
}

template <typename T, typename Rule>
bool TryLoop(const AdaptiveRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  const Rule* const found = std::get_if<Rule>(&rule);
  if (found != nullptr) Loop(*found, a, begin, end);
  return found != nullptr;
}

template <typename T>
void Run(const AdaptiveRule<T>& rule, const AdaptiveArrays<T>& a, int64_t begin, int64_t end) {
  TryLoop<T, AdagradRule<T>>(rule, a, begin, end) ||
      TryLoop<T, AdadeltaRule<T>>(rule, a, begin, end) ||
      TryLoop<T, RmspropRule<T>>(rule, a, begin, end) ||
      TryLoop<T, LionRule<T>>(rule, a, begin, end) ||
      TryLoop<T, LambRule<T>>(rule, a, begin, end) || TryLoop<T, EmaRule<T>>(rule, a, begin, end);
}

void RunFloat(const AdaptiveRule<float>& rule, const AdaptiveArrays<float>& arrays, int64_t begin,
              int64_t end) {
  Run(rule, arrays, begin, end);
}
void RunDouble(const AdaptiveRule<double>& rule, const AdaptiveArrays<double>& arrays,
               int64_t begin, int64_t end) {
  Run(rule, arrays, begin, end);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);

void AdaptiveUpdate(const AdaptiveRule<float>& rule, const AdaptiveArrays<float>& arrays,
                    int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RunFloat)(rule, arrays, begin, end);
}
void AdaptiveUpdate(const AdaptiveRule<double>& rule, const AdaptiveArrays<double>& arrays,
                    int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RunDouble)(rule, arrays, begin, end);
}

}  // namespace weft::cpu
#endif
