// LAMB's direction: ops/defs/optimizer/lamb.cc has the formula.
#include <cmath>

#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/lamb.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Lamb {
 public:
  explicit Lamb(const Attributes& attributes)
      : weight_decay_(Hyperparameter(attributes, "weight_decay")),
        beta1_(Hyperparameter(attributes, "beta1")),
        beta2_(Hyperparameter(attributes, "beta2")),
        epsilon_(Hyperparameter(attributes, "epsilon")) {}

  // `new_w` is the direction.
  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T beta1 = static_cast<T>(beta1_);
    const T gradient_share = static_cast<T>(1 - beta1_);
    const T beta2 = static_cast<T>(beta2_);
    const T square_share = static_cast<T>(1 - beta2_);
    const T epsilon = static_cast<T>(epsilon_);
    const T weight_decay = static_cast<T>(weight_decay_);
    const T mean_scale = static_cast<T>(1 / (1 - std::pow(beta1_, now.step)));
    const T root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2_, now.step)));
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::LoadU(d, a.g + i);
      const auto m = hn::MulAdd(hn::Set(d, beta1), hn::LoadU(d, a.state[0] + i),
                                hn::Mul(hn::Set(d, gradient_share), g));
      const auto v = hn::MulAdd(hn::Set(d, beta2), hn::LoadU(d, a.state[1] + i),
                                hn::Mul(hn::Mul(hn::Set(d, square_share), g), g));
      const auto root = hn::MulAdd(hn::Sqrt(v), hn::Set(d, root_scale), hn::Set(d, epsilon));
      const auto step = hn::Div(hn::Mul(hn::Set(d, mean_scale), m), root);
      hn::StoreU(m, d, a.new_state[0] + i);
      hn::StoreU(v, d, a.new_state[1] + i);
      hn::StoreU(hn::MulAdd(hn::Set(d, weight_decay), w, step), d, a.new_w + i);
    });
  }

 private:
  double weight_decay_;
  double beta1_;
  double beta2_;
  double epsilon_;
};

std::unique_ptr<UpdateRule> MakeLambRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Lamb>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeLambRule);
WEFT_REGISTER_KERNEL("ai.weft", "LambDirection", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 2.5}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeLambRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
