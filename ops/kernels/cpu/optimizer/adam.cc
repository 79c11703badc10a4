// Adam: ops/defs/optimizer/adam.cc has the formula.
#include <cmath>

#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/adam.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Adam {
 public:
  explicit Adam(const Attributes& attributes)
      : beta1_(Hyperparameter(attributes, "beta1")),
        beta2_(Hyperparameter(attributes, "beta2")),
        epsilon_(Hyperparameter(attributes, "epsilon")),
        weight_decay_(Hyperparameter(attributes, "weight_decay")),
        decoupled_(attributes.Int("decoupled", 0) != 0) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    if (a.state[2] != nullptr) return Loop<T, true>(now, a, begin, end);
    Loop<T, false>(now, a, begin, end);
  }

 private:
  template <typename T, bool kMax>
  void Loop(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T beta1 = static_cast<T>(beta1_);
    const T beta2 = static_cast<T>(beta2_);
    const T gradient_share = static_cast<T>(1 - beta1_);
    const T square_share = static_cast<T>(1 - beta2_);
    const T epsilon = static_cast<T>(epsilon_);
    const T step_size = static_cast<T>(now.learning_rate / (1 - std::pow(beta1_, now.step)));
    const T root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2_, now.step)));
    const T l2_decay = static_cast<T>(decoupled_ ? 0 : weight_decay_);
    const T weight_scale = static_cast<T>(decoupled_ ? 1 - now.learning_rate * weight_decay_ : 1);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::MulAdd(hn::Set(d, l2_decay), w, hn::LoadU(d, a.g + i));
      const auto m = hn::MulAdd(hn::Set(d, beta1), hn::LoadU(d, a.state[0] + i),
                                hn::Mul(hn::Set(d, gradient_share), g));
      const auto v = hn::MulAdd(hn::Set(d, beta2), hn::LoadU(d, a.state[1] + i),
                                hn::Mul(hn::Mul(hn::Set(d, square_share), g), g));
      auto square = v;
      if constexpr (kMax) {
        square = hn::Max(hn::LoadU(d, a.state[2] + i), v);
        hn::StoreU(square, d, a.new_state[2] + i);
      }
      const auto root = hn::MulAdd(hn::Sqrt(square), hn::Set(d, root_scale), hn::Set(d, epsilon));
      const auto step = hn::Div(hn::Mul(hn::Set(d, step_size), m), root);
      hn::StoreU(m, d, a.new_state[0] + i);
      hn::StoreU(v, d, a.new_state[1] + i);
      hn::StoreU(hn::MulSub(hn::Set(d, weight_scale), w, step), d, a.new_w + i);
    });
  }

  double beta1_;
  double beta2_;
  double epsilon_;
  double weight_decay_;
  bool decoupled_;
};

std::unique_ptr<UpdateRule> MakeAdamRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Adam>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeAdamRule);
WEFT_REGISTER_KERNEL("ai.weft", "AdamUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 0.5, .more_per_state = 1},
                                  [](const Attributes& attributes) {
                                    return HWY_DYNAMIC_DISPATCH(MakeAdamRule)(attributes);
                                  }));

}  // namespace weft::cpu
#endif
