// RMSprop: ops/defs/optimizer/rmsprop.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/rmsprop.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Rmsprop {
 public:
  explicit Rmsprop(const Attributes& attributes)
      : weight_decay_(Hyperparameter(attributes, "weight_decay")),
        alpha_(Hyperparameter(attributes, "alpha")),
        epsilon_(Hyperparameter(attributes, "epsilon")),
        momentum_(Hyperparameter(attributes, "momentum")) {}

  // State: square, mean if centered, velocity if there is one.
  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const bool has_velocity = a.state[2] != nullptr;
    if (a.state[1] != nullptr) {
      return has_velocity ? Loop<T, true, true>(now, a, begin, end)
                          : Loop<T, true, false>(now, a, begin, end);
    }
    return has_velocity ? Loop<T, false, true>(now, a, begin, end)
                        : Loop<T, false, false>(now, a, begin, end);
  }

 private:
  // What of the rule applies is known before the loop.
  template <typename T, bool kCentered, bool kVelocity>
  void Loop(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T rate = static_cast<T>(now.learning_rate);
    const T l2_decay = static_cast<T>(weight_decay_);
    const T kept = static_cast<T>(alpha_);
    const T square_share = static_cast<T>(1 - alpha_);
    const T epsilon = static_cast<T>(epsilon_);
    const T momentum = static_cast<T>(momentum_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto alpha = hn::Set(d, kept);
      const auto share = hn::Set(d, square_share);
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::MulAdd(hn::Set(d, l2_decay), w, hn::LoadU(d, a.g + i));
      const auto square =
          hn::MulAdd(alpha, hn::LoadU(d, a.state[0] + i), hn::Mul(hn::Mul(share, g), g));
      hn::StoreU(square, d, a.new_state[0] + i);
      auto spread = square;
      if constexpr (kCentered) {
        const auto mean = hn::MulAdd(alpha, hn::LoadU(d, a.state[1] + i), hn::Mul(share, g));
        hn::StoreU(mean, d, a.new_state[1] + i);
        spread = hn::NegMulAdd(mean, mean, square);
      }
      auto direction = hn::Div(g, hn::Add(hn::Sqrt(spread), hn::Set(d, epsilon)));
      if constexpr (kVelocity) {
        direction = hn::MulAdd(hn::Set(d, momentum), hn::LoadU(d, a.state[2] + i), direction);
        hn::StoreU(direction, d, a.new_state[2] + i);
      }
      hn::StoreU(hn::NegMulAdd(hn::Set(d, rate), direction, w), d, a.new_w + i);
    });
  }

  double weight_decay_;
  double alpha_;
  double epsilon_;
  double momentum_;
};

std::unique_ptr<UpdateRule> MakeRmspropRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Rmsprop>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeRmspropRule);
WEFT_REGISTER_KERNEL("ai.weft", "RmspropUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 3}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeRmspropRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
