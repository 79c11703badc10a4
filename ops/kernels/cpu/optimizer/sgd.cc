// Gradient descent: ops/defs/optimizer/sgd.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/sgd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Sgd {
 public:
  explicit Sgd(const Attributes& attributes)
      : momentum_(Hyperparameter(attributes, "momentum")),
        dampening_(Hyperparameter(attributes, "dampening")),
        weight_decay_(Hyperparameter(attributes, "weight_decay")),
        nesterov_(attributes.Int("nesterov", 0) != 0) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    if (a.state[0] == nullptr) return Loop<T, false, false>(now, a, begin, end);
    if (nesterov_) return Loop<T, true, true>(now, a, begin, end);
    Loop<T, true, false>(now, a, begin, end);
  }

 private:
  // What of the rule applies is known before the loop.
  template <typename T, bool kVelocity, bool kNesterov>
  void Loop(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T rate = static_cast<T>(now.learning_rate);
    const T scale = static_cast<T>(now.scale);
    const T weight_decay = static_cast<T>(weight_decay_);
    const T momentum_share = static_cast<T>(momentum_);
    const T gradient_share = now.step == 1 ? T{1} : static_cast<T>(1 - dampening_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto w = hn::LoadU(d, a.w + i);
      const auto decayed = hn::MulAdd(hn::Set(d, weight_decay), w, hn::LoadU(d, a.g + i));
      const auto g = hn::Mul(hn::Set(d, scale), decayed);
      auto direction = g;
      if constexpr (kVelocity) {
        const auto momentum = hn::Set(d, momentum_share);
        const auto velocity = hn::MulAdd(momentum, hn::LoadU(d, a.state[0] + i),
                                         hn::Mul(hn::Set(d, gradient_share), g));
        hn::StoreU(velocity, d, a.new_state[0] + i);
        direction = kNesterov ? hn::MulAdd(momentum, velocity, g) : velocity;
      }
      hn::StoreU(hn::NegMulAdd(hn::Set(d, rate), direction, w), d, a.new_w + i);
    });
  }

  double momentum_;
  double dampening_;
  double weight_decay_;
  bool nesterov_;
};

std::unique_ptr<UpdateRule> MakeSgdRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Sgd>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeSgdRule);
WEFT_REGISTER_KERNEL("ai.weft", "SgdUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 1, .more_per_state = 0.5},
                                  [](const Attributes& attributes) {
                                    return HWY_DYNAMIC_DISPATCH(MakeSgdRule)(attributes);
                                  }));

}  // namespace weft::cpu
#endif
