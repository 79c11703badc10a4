// Pow: the exponent may have another type than the base.
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

// base^exponent by squaring, wrapping around; a negative exponent leaves 0 but for 1 and -1.
template <typename T>
T WholePower(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t power = 1;
  uint64_t factor = static_cast<uint64_t>(base);
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= factor;
    factor *= factor;
  }
  return static_cast<T>(power);
}

// A double as a T: nearest for floats, towards zero and within the range for whole numbers.
template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    const double high = static_cast<double>(std::numeric_limits<T>::max());
    if (value <= low) return std::numeric_limits<T>::min();
    if (value >= high) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  } else {
    return Store<T>(static_cast<ComputeType<T>>(value));
  }
}

template <typename T, typename E>
T Power(T base, E exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    return WholePower<T>(base, static_cast<int64_t>(exponent));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::pow(base, static_cast<double>(Load(exponent)));
  } else {
    // In double, rounded once: float32 results are right to half an ulp.
    return FromDouble<T>(
        std::pow(static_cast<double>(Load(base)), static_cast<double>(Load(exponent))));
  }
}

// Squares are what models ask for (mean squares, variances).
template <typename T>
void SquareRow(const T* x, T* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * x[i];
}

template <typename T, typename E>
std::unique_ptr<Kernel> MakePowKernel(BroadcastPlan plan, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const T* base = Input<T>(context, 0);
    const E* exponent = Input<E>(context, 1);
    T* out = Output<T>(context, 0);
    const int64_t base_step = plan.inner_strides[0];
    const int64_t exponent_step = plan.inner_strides[1];
    ForEachRun(plan, threads, kScalarFunctionNanoseconds,
               [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
                 const T* x = base + offsets[0];
                 const E* e = exponent + offsets[1];
                 if constexpr (std::is_floating_point_v<T>) {
                   if (exponent_step == 0 && base_step == 1 && Load(*e) == 2) {
                     return SquareRow(x, out + to, count);
                   }
                 }
                 for (int64_t i = 0; i < count; ++i) {
                   out[to + i] = Power<T, E>(x[i * base_step], e[i * exponent_step]);
                 }
               });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PreparePow(const PrepareContext& context) {
  BroadcastPlan plan =
      BroadcastPlan::Make(context.OutputShape(0), {context.InputShape(0), context.InputShape(1)});
  using Bases = TypeList<float, double, Float16, Bfloat16, int32_t, int64_t>;
  return PrepareByDType(context, context.InputDType(0), Bases(), [&](auto base) {
    return PrepareByDType(context, context.InputDType(1), NumericTypes(),
                          [&](auto exponent) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakePowKernel<decltype(base), decltype(exponent)>(
                                std::move(plan), context.threads());
                          });
  });
}

WEFT_REGISTER_KERNEL("", "Pow", DeviceKind::kCpu, PreparePow);

}  // namespace
}  // namespace weft::cpu
