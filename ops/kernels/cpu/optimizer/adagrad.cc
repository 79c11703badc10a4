// Adagrad: ops/defs/optimizer/adagrad.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/adagrad.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Adagrad {
 public:
  explicit Adagrad(const Attributes& attributes)
      : weight_decay_(Hyperparameter(attributes, "weight_decay")),
        rate_decay_(Hyperparameter(attributes, "rate_decay")),
        epsilon_(Hyperparameter(attributes, "epsilon")) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T l2_decay = static_cast<T>(weight_decay_);
    const T epsilon = static_cast<T>(epsilon_);
    const T step_size = static_cast<T>(now.learning_rate / (1 + (now.step - 1) * rate_decay_));
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::MulAdd(hn::Set(d, l2_decay), w, hn::LoadU(d, a.g + i));
      const auto sum = hn::MulAdd(g, g, hn::LoadU(d, a.state[0] + i));
      const auto root = hn::Add(hn::Sqrt(sum), hn::Set(d, epsilon));
      hn::StoreU(sum, d, a.new_state[0] + i);
      hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, step_size), g), root)), d, a.new_w + i);
    });
  }

 private:
  double weight_decay_;
  double rate_decay_;
  double epsilon_;
};

std::unique_ptr<UpdateRule> MakeAdagradRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Adagrad>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeAdagradRule);
WEFT_REGISTER_KERNEL("ai.weft", "AdagradUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 2}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeAdagradRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
