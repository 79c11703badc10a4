// Lion: ops/defs/optimizer/lion.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/lion.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Lion {
 public:
  explicit Lion(const Attributes& attributes)
      : weight_decay_(Hyperparameter(attributes, "weight_decay")),
        beta1_(Hyperparameter(attributes, "beta1")),
        beta2_(Hyperparameter(attributes, "beta2")) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T step_size = static_cast<T>(now.learning_rate);
    const T weight_scale = static_cast<T>(1 - now.learning_rate * weight_decay_);
    const T beta1 = static_cast<T>(beta1_);
    const T direction_share = static_cast<T>(1 - beta1_);
    const T beta2 = static_cast<T>(beta2_);
    const T gradient_share = static_cast<T>(1 - beta2_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto zero = hn::Zero(d);
      const auto rate = hn::Set(d, step_size);
      const auto g = hn::LoadU(d, a.g + i);
      const auto m = hn::LoadU(d, a.state[0] + i);
      const auto mixed = hn::MulAdd(hn::Set(d, beta1), m, hn::Mul(hn::Set(d, direction_share), g));
      // Of zero, zero; of NaN, NaN: what is neither above nor below passes.
      const auto below = hn::IfThenElse(hn::Lt(mixed, zero), hn::Neg(rate), hn::Mul(rate, mixed));
      const auto step = hn::IfThenElse(hn::Gt(mixed, zero), rate, below);
      const auto w = hn::Mul(hn::Set(d, weight_scale), hn::LoadU(d, a.w + i));
      hn::StoreU(hn::MulAdd(hn::Set(d, beta2), m, hn::Mul(hn::Set(d, gradient_share), g)), d,
                 a.new_state[0] + i);
      hn::StoreU(hn::Sub(w, step), d, a.new_w + i);
    });
  }

 private:
  double weight_decay_;
  double beta1_;
  double beta2_;
};

std::unique_ptr<UpdateRule> MakeLionRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Lion>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeLionRule);
WEFT_REGISTER_KERNEL("ai.weft", "LionUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 2}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeLionRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
