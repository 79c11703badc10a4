// RAdam: ops/defs/optimizer/radam.cc has the formula.
#include <cmath>

#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/radam.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Radam {
 public:
  explicit Radam(const Attributes& attributes)
      : beta1_(Hyperparameter(attributes, "beta1")),
        beta2_(Hyperparameter(attributes, "beta2")),
        epsilon_(Hyperparameter(attributes, "epsilon")),
        weight_decay_(Hyperparameter(attributes, "weight_decay")) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const double rate = now.learning_rate / (1 - std::pow(beta1_, now.step));
    const double kept = std::pow(beta2_, now.step);
    const double r_max = 2 / (1 - beta2_) - 1;
    const double r = r_max - 2 * now.step * kept / (1 - kept);
    if (!(r > 5)) return Loop<T, false>(rate, a, begin, end);
    const double s = (r - 4) * (r - 2) * r_max / ((r_max - 4) * (r_max - 2) * r);
    Loop<T, true>(rate * std::sqrt(s * (1 - kept)), a, begin, end);
  }

 private:
  template <typename T, bool kIsAdaptive>
  void Loop(double step_size, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T size = static_cast<T>(step_size);
    const T beta1 = static_cast<T>(beta1_);
    const T gradient_share = static_cast<T>(1 - beta1_);
    const T beta2 = static_cast<T>(beta2_);
    const T square_share = static_cast<T>(1 - beta2_);
    const T epsilon = static_cast<T>(epsilon_);
    const T weight_decay = static_cast<T>(weight_decay_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::MulAdd(hn::Set(d, weight_decay), w, hn::LoadU(d, a.g + i));
      const auto m = hn::MulAdd(hn::Set(d, beta1), hn::LoadU(d, a.state[0] + i),
                                hn::Mul(hn::Set(d, gradient_share), g));
      const auto v = hn::MulAdd(hn::Set(d, beta2), hn::LoadU(d, a.state[1] + i),
                                hn::Mul(hn::Mul(hn::Set(d, square_share), g), g));
      auto step = hn::Mul(hn::Set(d, size), m);
      if constexpr (kIsAdaptive) {
        step = hn::Div(step, hn::Add(hn::Sqrt(v), hn::Set(d, epsilon)));
      }
      hn::StoreU(m, d, a.new_state[0] + i);
      hn::StoreU(v, d, a.new_state[1] + i);
      hn::StoreU(hn::Sub(w, step), d, a.new_w + i);
    });
  }

  double beta1_;
  double beta2_;
  double epsilon_;
  double weight_decay_;
};

std::unique_ptr<UpdateRule> MakeRadamRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Radam>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeRadamRule);
WEFT_REGISTER_KERNEL("ai.weft", "RadamUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 2.5}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeRadamRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
