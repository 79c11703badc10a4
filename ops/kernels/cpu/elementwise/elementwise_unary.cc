// Functions of one operand.
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/elementwise/elementwise_simd.h"

namespace weft::cpu {
namespace {

double Nanoseconds(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
    case UnaryOp::kSqrt:
    case UnaryOp::kReciprocal:
    case UnaryOp::kAbs:
    case UnaryOp::kSign:
    case UnaryOp::kRelu:
      return kArithmeticNanoseconds;
    default:
      return kVectorFunctionNanoseconds;
  }
}

std::unique_ptr<Kernel> MakeFloatKernel(UnaryOp op, int64_t elements, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    const float* x = Input<float>(context, 0);
    float* out = Output<float>(context, 0);
    ParallelFor(threads, elements, Nanoseconds(op), kElementGrain, [&](int64_t begin, int64_t end) {
      UnaryFloat(op, x + begin, out + begin, end - begin);
    });
    return absl::OkStatus();
  });
}

// The op on one element; whole numbers know Neg, Abs, Sign and Relu, and wrap around.
template <UnaryOp op, typename T>
T Apply(T x) {
  if constexpr (op == UnaryOp::kNeg) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(uint64_t{0} - uint64_t(x));
    return -x;
  } else if constexpr (op == UnaryOp::kAbs) {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? Apply<UnaryOp::kNeg, T>(x) : x;
    } else {
      return std::abs(x);
    }
  } else if constexpr (op == UnaryOp::kSign) {
    return x > 0 ? T{1} : x < 0 ? static_cast<T>(-1) : x;
  } else if constexpr (op == UnaryOp::kRelu) {
    return x < 0 ? T{0} : x;
  } else if constexpr (op == UnaryOp::kExp) {
    return std::exp(x);
  } else if constexpr (op == UnaryOp::kLog) {
    return std::log(x);
  } else if constexpr (op == UnaryOp::kSqrt) {
    return std::sqrt(x);
  } else if constexpr (op == UnaryOp::kReciprocal) {
    return 1 / x;
  } else if constexpr (op == UnaryOp::kErf) {
    return std::erf(x);
  } else if constexpr (op == UnaryOp::kSigmoid) {
    const T e = std::exp(-std::abs(x));
    return (x >= 0 ? T{1} : e) / (1 + e);
  } else {
    static_assert(op == UnaryOp::kTanh);
    return std::tanh(x);
  }
}

template <UnaryOp op, typename T>
std::unique_ptr<Kernel> MakePlainKernel(int64_t elements, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    const T* x = Input<T>(context, 0);
    T* out = Output<T>(context, 0);
    ParallelFor(threads, elements, kScalarFunctionNanoseconds, kElementGrain,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    out[i] = Store<T>(Apply<op, ComputeType<T>>(Load(x[i])));
                  }
                });
    return absl::OkStatus();
  });
}

template <UnaryOp op, typename Types>
absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const PrepareContext& context) {
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), Types(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          if constexpr (std::is_same_v<T, float>) {
                            return MakeFloatKernel(op, elements, context.threads());
                          } else {
                            return MakePlainKernel<op, T>(elements, context.threads());
                          }
                        });
}

WEFT_REGISTER_KERNEL("", "Neg", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kNeg, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Abs", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kAbs, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Sign", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kSign, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Relu", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kRelu, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Exp", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kExp, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Log", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kLog, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Sqrt", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kSqrt, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Reciprocal", DeviceKind::kCpu,
                     Widened(Prepare<UnaryOp::kReciprocal, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Erf", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kErf, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Sigmoid", DeviceKind::kCpu,
                     Widened(Prepare<UnaryOp::kSigmoid, FloatTypes>));
WEFT_REGISTER_KERNEL("", "Tanh", DeviceKind::kCpu, Widened(Prepare<UnaryOp::kTanh, FloatTypes>));

}  // namespace
}  // namespace weft::cpu
