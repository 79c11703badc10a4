#include "ops/kernels/cpu/optimizer/update_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/update_rules.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, i) for vectors, and for the rest with one lane: the same operations on each
// element.
template <typename T, typename Body>
HWY_INLINE void ForVectors(int64_t begin, int64_t end, const Body& body) {
  const hn::ScalableTag<T> vector;
  const hn::CappedTag<T, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(vector));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(vector, i);
  for (; i < end; ++i) body(single, i);
}

// What of the rule applies is known before the loop.
template <typename T, bool kVelocity, bool kNesterov>
void SgdLoop(const SgdRule<T>& rule, const SgdArrays<T>& arrays, int64_t begin, int64_t end) {
  ForVectors<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, arrays.w + i);
    const auto decayed = hn::MulAdd(hn::Set(d, rule.weight_decay), w, hn::LoadU(d, arrays.g + i));
    const auto g = hn::Mul(hn::Set(d, rule.scale), decayed);
    auto direction = g;
    if constexpr (kVelocity) {
      const auto momentum = hn::Set(d, rule.momentum);
      const auto velocity = hn::MulAdd(momentum, hn::LoadU(d, arrays.velocity + i),
                                       hn::Mul(hn::Set(d, rule.gradient_share), g));
      if (arrays.new_velocity != nullptr) hn::StoreU(velocity, d, arrays.new_velocity + i);
      direction = kNesterov ? hn::MulAdd(momentum, velocity, g) : velocity;
    }
    hn::StoreU(hn::NegMulAdd(hn::Set(d, rule.learning_rate), direction, w), d, arrays.new_w + i);
  });
}

template <typename T>
void Sgd(const SgdRule<T>& rule, const SgdArrays<T>& arrays, int64_t begin, int64_t end) {
  if (arrays.velocity == nullptr) return SgdLoop<T, false, false>(rule, arrays, begin, end);
  if (rule.nesterov) return SgdLoop<T, true, true>(rule, arrays, begin, end);
  SgdLoop<T, true, false>(rule, arrays, begin, end);
}

template <typename T, bool kMax>
void AdamLoop(const AdamRule<T>& rule, const AdamArrays<T>& arrays, int64_t begin, int64_t end) {
  ForVectors<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, arrays.w + i);
    const auto g = hn::MulAdd(hn::Set(d, rule.l2_decay), w, hn::LoadU(d, arrays.g + i));
    const auto m = hn::MulAdd(hn::Set(d, rule.beta1), hn::LoadU(d, arrays.m + i),
                              hn::Mul(hn::Set(d, rule.gradient_share), g));
    const auto v = hn::MulAdd(hn::Set(d, rule.beta2), hn::LoadU(d, arrays.v + i),
                              hn::Mul(hn::Mul(hn::Set(d, rule.square_share), g), g));
    auto square = v;
    if constexpr (kMax) {
      square = hn::Max(hn::LoadU(d, arrays.v_max + i), v);
      hn::StoreU(square, d, arrays.new_v_max + i);
    }
    const auto root =
        hn::MulAdd(hn::Sqrt(square), hn::Set(d, rule.root_scale), hn::Set(d, rule.epsilon));
    const auto step = hn::Div(hn::Mul(hn::Set(d, rule.step_size), m), root);
    hn::StoreU(m, d, arrays.new_m + i);
    hn::StoreU(v, d, arrays.new_v + i);
    hn::StoreU(hn::MulSub(hn::Set(d, rule.weight_scale), w, step), d, arrays.new_w + i);
  });
}

template <typename T>
void Adam(const AdamRule<T>& rule, const AdamArrays<T>& arrays, int64_t begin, int64_t end) {
  if (arrays.v_max != nullptr) return AdamLoop<T, true>(rule, arrays, begin, end);
  AdamLoop<T, false>(rule, arrays, begin, end);
}

void SgdFloat(const SgdRule<float>& rule, const SgdArrays<float>& arrays, int64_t begin,
              int64_t end) {
  Sgd(rule, arrays, begin, end);
}
void SgdDouble(const SgdRule<double>& rule, const SgdArrays<double>& arrays, int64_t begin,
               int64_t end) {
  Sgd(rule, arrays, begin, end);
}
void AdamFloat(const AdamRule<float>& rule, const AdamArrays<float>& arrays, int64_t begin,
               int64_t end) {
  Adam(rule, arrays, begin, end);
}
void AdamDouble(const AdamRule<double>& rule, const AdamArrays<double>& arrays, int64_t begin,
                int64_t end) {
  Adam(rule, arrays, begin, end);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(SgdFloat);
HWY_EXPORT(SgdDouble);
HWY_EXPORT(AdamFloat);
HWY_EXPORT(AdamDouble);

void SgdUpdate(const SgdRule<float>& rule, const SgdArrays<float>& arrays, int64_t begin,
               int64_t end) {
  HWY_DYNAMIC_DISPATCH(SgdFloat)(rule, arrays, begin, end);
}
void SgdUpdate(const SgdRule<double>& rule, const SgdArrays<double>& arrays, int64_t begin,
               int64_t end) {
  HWY_DYNAMIC_DISPATCH(SgdDouble)(rule, arrays, begin, end);
}
void AdamUpdate(const AdamRule<float>& rule, const AdamArrays<float>& arrays, int64_t begin,
                int64_t end) {
  HWY_DYNAMIC_DISPATCH(AdamFloat)(rule, arrays, begin, end);
}
void AdamUpdate(const AdamRule<double>& rule, const AdamArrays<double>& arrays, int64_t begin,
                int64_t end) {
  HWY_DYNAMIC_DISPATCH(AdamDouble)(rule, arrays, begin, end);
}

}  // namespace weft::cpu
#endif
