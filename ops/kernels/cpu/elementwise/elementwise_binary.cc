// Add, Sub, Mul, Div, Pow and the backward kernels of two operands.
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/elementwise/elementwise_simd.h"

namespace weft::cpu {
namespace {

// ---- float32: vector loops.

BinaryOperands OperandsOf(const BroadcastPlan& plan) {
  if (plan.inner == 1) return BinaryOperands::kArrays;
  if (plan.inner_strides[0] == 0) return BinaryOperands::kScalarA;
  if (plan.inner_strides[1] == 0) return BinaryOperands::kScalarB;
  return BinaryOperands::kArrays;
}

double Nanoseconds(BinaryOp op) {
  switch (op) {
    case BinaryOp::kErfGrad:
    case BinaryOp::kGeluGrad:
    case BinaryOp::kTanhGeluGrad:
    case BinaryOp::kSwishGrad:
      return kVectorFunctionNanoseconds;
    default:
      return kArithmeticNanoseconds;
  }
}

std::unique_ptr<Kernel> MakeFloatKernel(BinaryOp op, BroadcastPlan plan, int threads) {
  const BinaryOperands operands = OperandsOf(plan);
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const float* a = Input<float>(context, 0);
    const float* b = Input<float>(context, 1);
    float* out = Output<float>(context, 0);
    ForEachRun(plan, threads, Nanoseconds(op),
               [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
                 BinaryFloat(op, operands, a + offsets[0], b + offsets[1], out + to, count);
               });
    return absl::OkStatus();
  });
}

// ---- Other types: plain loops.

// Whole numbers wrap around.
template <typename T>
using Wrapping = std::make_unsigned_t<T>;

template <typename T>
constexpr bool kIsWhole = std::is_integral_v<T>;

struct AddElements {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (kIsWhole<T>) return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
    return a + b;
  }
};

struct SubElements {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (kIsWhole<T>) return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
    return a - b;
  }
};

struct MulElements {
  template <typename T>
  static T Of(T a, T b) {
    // 64 bits hold the product of any narrower two; uint16_t would be promoted to a signed int.
    if constexpr (kIsWhole<T>) return static_cast<T>(uint64_t(a) * uint64_t(b));
    return a * b;
  }
};

// Whole numbers: towards zero; by zero is refused before the loop; the smallest by -1 wraps around.
struct DivElements {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_signed_v<T> && kIsWhole<T>) {
      if (b == -1) return SubElements::Of<T>(0, a);
    }
    return static_cast<T>(a / b);
  }
};

struct ReluGradElements {
  template <typename T>
  static T Of(T dy, T y) {
    return y > 0 ? dy : T{0};
  }
};

struct SigmoidGradElements {
  template <typename T>
  static T Of(T dy, T y) {
    return dy * y * (1 - y);
  }
};

struct TanhGradElements {
  template <typename T>
  static T Of(T dy, T y) {
    return dy * (1 - y) * (1 + y);
  }
};

struct ErfGradElements {
  template <typename T>
  static T Of(T dy, T x) {
    return static_cast<T>(dy * 1.1283791670955126 * std::exp(-x * x));  // 2 / sqrt(pi)
  }
};

struct GeluGradElements {
  template <typename T>
  static T Of(T dy, T x) {
    const double wide = x;
    const double density = 0.3989422804014327 * std::exp(-0.5 * wide * wide);  // 1 / sqrt(2 pi)
    const double distribution = 0.5 * (1 + std::erf(wide * 0.7071067811865476));
    return static_cast<T>(dy * (distribution + wide * density));
  }
};

struct TanhGeluGradElements {
  template <typename T>
  static T Of(T dy, T x) {
    const double wide = x;
    const double twice = 1.5957691216057308;  // 2 sqrt(2 / pi)
    const double inner = twice * wide * (1 + 0.044715 * wide * wide);
    const double s = 1 / (1 + std::exp(-inner));
    const double slope = twice * (1 + 3 * 0.044715 * wide * wide);
    return static_cast<T>(dy * (s + wide * s * (1 - s) * slope));
  }
};

struct SwishGradElements {
  template <typename T>
  static T Of(T dy, T x) {
    const double s = 1 / (1 + std::exp(-static_cast<double>(x)));
    return static_cast<T>(dy * (s + x * s * (1 - s)));
  }
};

// InvalidArgument when an element of the divisor is zero.
template <typename T>
absl::Status CheckDivisor(const T* divisor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    if (divisor[i] == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("division of whole numbers by zero: element ", i, " of B is 0"));
    }
  }
  return absl::OkStatus();
}

template <typename Op, typename T>
std::unique_ptr<Kernel> MakePlainKernel(BroadcastPlan plan, int64_t b_elements, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) -> absl::Status {
    const T* a = Input<T>(context, 0);
    const T* b = Input<T>(context, 1);
    T* out = Output<T>(context, 0);
    if constexpr (std::is_same_v<Op, DivElements> && kIsWhole<T>) {
      const absl::Status status = CheckDivisor(b, b_elements);
      if (!status.ok()) return status;
    }
    const int64_t a_step = plan.inner_strides[0];
    const int64_t b_step = plan.inner_strides[1];
    ForEachRun(
        plan, threads, 1.0, [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
          const T* x = a + offsets[0];
          const T* y = b + offsets[1];
          for (int64_t i = 0; i < count; ++i) {
            using C = ComputeType<T>;
            out[to + i] = Store<T>(Op::template Of<C>(Load(x[i * a_step]), Load(y[i * b_step])));
          }
        });
    return absl::OkStatus();
  });
}

template <typename Op, typename Types>
KernelFactory Binary(BinaryOp op) {
  return [op](const PrepareContext& context) {
    BroadcastPlan plan =
        BroadcastPlan::Make(context.OutputShape(0), {context.InputShape(0), context.InputShape(1)});
    const int threads = context.threads();
    const int64_t b_elements = context.InputShape(1).num_elements();
    return PrepareByDType(context, context.InputDType(0), Types(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using T = decltype(zero);
                            if constexpr (std::is_same_v<T, float>) {
                              return MakeFloatKernel(op, std::move(plan), threads);
                            } else {
                              return MakePlainKernel<Op, T>(std::move(plan), b_elements, threads);
                            }
                          });
  };
}

using Arithmetic = NumericTypes;
WEFT_REGISTER_KERNEL("", "Add", DeviceKind::kCpu,
                     Widened(Binary<AddElements, Arithmetic>(BinaryOp::kAdd)));
WEFT_REGISTER_KERNEL("", "Sub", DeviceKind::kCpu,
                     Widened(Binary<SubElements, Arithmetic>(BinaryOp::kSub)));
WEFT_REGISTER_KERNEL("", "Mul", DeviceKind::kCpu,
                     Widened(Binary<MulElements, Arithmetic>(BinaryOp::kMul)));
WEFT_REGISTER_KERNEL("", "Div", DeviceKind::kCpu,
                     Widened(Binary<DivElements, Arithmetic>(BinaryOp::kDiv)));
WEFT_REGISTER_KERNEL(kWeftDomain, "ReluGrad", DeviceKind::kCpu,
                     Widened(Binary<ReluGradElements, FloatTypes>(BinaryOp::kReluGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "SigmoidGrad", DeviceKind::kCpu,
                     Widened(Binary<SigmoidGradElements, FloatTypes>(BinaryOp::kSigmoidGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "TanhGrad", DeviceKind::kCpu,
                     Widened(Binary<TanhGradElements, FloatTypes>(BinaryOp::kTanhGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "ErfGrad", DeviceKind::kCpu,
                     Widened(Binary<ErfGradElements, FloatTypes>(BinaryOp::kErfGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "GeluGrad", DeviceKind::kCpu,
                     Widened(Binary<GeluGradElements, FloatTypes>(BinaryOp::kGeluGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "TanhGeluGrad", DeviceKind::kCpu,
                     Widened(Binary<TanhGeluGradElements, FloatTypes>(BinaryOp::kTanhGeluGrad)));
WEFT_REGISTER_KERNEL(kWeftDomain, "SwishGrad", DeviceKind::kCpu,
                     Widened(Binary<SwishGradElements, FloatTypes>(BinaryOp::kSwishGrad)));

}  // namespace
}  // namespace weft::cpu
