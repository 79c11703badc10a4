// SwiGLU: the product of a value and the Swish of its gate, in one pass.
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_map.h"
#include "ops/kernels/cpu/elementwise/activation_simd.h"

namespace weft::cpu {
namespace {

std::unique_ptr<Kernel> MakeFloatSwiGlu(float alpha, int64_t elements, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    const float* a = Input<float>(context, 0);
    const float* b = Input<float>(context, 1);
    float* out = Output<float>(context, 0);
    ParallelFor(threads, elements, kVectorFunctionNanoseconds, kElementGrain,
                [&](int64_t begin, int64_t end) {
                  SwiGluFloat(alpha, a + begin, b + begin, out + begin,
                              static_cast<size_t>(end - begin));
                });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSwiGlu(const PrepareContext& context) {
  const float alpha = context.attributes().Float("alpha", 1);
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          if constexpr (std::is_same_v<T, float>) {
                            return MakeFloatSwiGlu(alpha, elements, context.threads());
                          } else {
                            using C = ComputeType<T>;
                            return MakeMapOfTwo<T, T, T>(
                                PlanOfTwo(context), context.threads(), kScalarFunctionNanoseconds,
                                [alpha](C a, C b) -> C {
                                  return a / (1 + std::exp(-static_cast<C>(alpha) * a)) * b;
                                });
                          }
                        });
}
WEFT_REGISTER_KERNEL("", "SwiGLU", DeviceKind::kCpu, PrepareSwiGlu);

}  // namespace
}  // namespace weft::cpu
