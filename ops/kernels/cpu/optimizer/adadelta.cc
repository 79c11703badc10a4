// Adadelta: ops/defs/optimizer/adadelta.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/adadelta.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Adadelta {
 public:
  explicit Adadelta(const Attributes& attributes)
      : weight_decay_(Hyperparameter(attributes, "weight_decay")),
        rho_(Hyperparameter(attributes, "rho")),
        epsilon_(Hyperparameter(attributes, "epsilon")) {}

  template <typename T>
  void Run(const UpdateScalars& now, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T rate = static_cast<T>(now.learning_rate);
    const T l2_decay = static_cast<T>(weight_decay_);
    const T kept = static_cast<T>(rho_);
    const T square_share = static_cast<T>(1 - rho_);
    const T epsilon_scalar = static_cast<T>(epsilon_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto epsilon = hn::Set(d, epsilon_scalar);
      const auto rho = hn::Set(d, kept);
      const auto share = hn::Set(d, square_share);
      const auto w = hn::LoadU(d, a.w + i);
      const auto g = hn::MulAdd(hn::Set(d, l2_decay), w, hn::LoadU(d, a.g + i));
      const auto square =
          hn::MulAdd(rho, hn::LoadU(d, a.state[0] + i), hn::Mul(hn::Mul(share, g), g));
      const auto moved = hn::LoadU(d, a.state[1] + i);
      const auto ratio =
          hn::Div(hn::Sqrt(hn::Add(moved, epsilon)), hn::Sqrt(hn::Add(square, epsilon)));
      const auto delta = hn::Mul(ratio, g);
      hn::StoreU(square, d, a.new_state[0] + i);
      hn::StoreU(hn::MulAdd(rho, moved, hn::Mul(hn::Mul(share, delta), delta)), d,
                 a.new_state[1] + i);
      hn::StoreU(hn::NegMulAdd(hn::Set(d, rate), delta, w), d, a.new_w + i);
    });
  }

 private:
  double weight_decay_;
  double rho_;
  double epsilon_;
};

std::unique_ptr<UpdateRule> MakeAdadeltaRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Adadelta>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeAdadeltaRule);
WEFT_REGISTER_KERNEL("ai.weft", "AdadeltaUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 4}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeAdadeltaRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
