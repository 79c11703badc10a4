// Averages of weights: ops/defs/optimizer/ema.cc has the formula.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer/ema.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

class Ema {
 public:
  explicit Ema(const Attributes& attributes) : decay_(Hyperparameter(attributes, "decay")) {}

  // w is the average, g the weight.
  template <typename T>
  void Run(const UpdateScalars&, const UpdateArrays<T>& a, int64_t begin, int64_t end) const {
    const T decay = static_cast<T>(decay_);
    const T weight_share = static_cast<T>(1 - decay_);
    ForEachVector<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
      const auto weight = hn::Mul(hn::Set(d, weight_share), hn::LoadU(d, a.g + i));
      hn::StoreU(hn::MulAdd(hn::Set(d, decay), hn::LoadU(d, a.w + i), weight), d, a.new_w + i);
    });
  }

 private:
  double decay_;
};

std::unique_ptr<UpdateRule> MakeEmaRule(const Attributes& attributes) {
  return std::make_unique<VectorRule<Ema>>(attributes);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MakeEmaRule);
WEFT_REGISTER_KERNEL("ai.weft", "EmaUpdate", DeviceKind::kCpu,
                     UpdateKernel({.nanoseconds = 1}, [](const Attributes& attributes) {
                       return HWY_DYNAMIC_DISPATCH(MakeEmaRule)(attributes);
                     }));

}  // namespace weft::cpu
#endif
