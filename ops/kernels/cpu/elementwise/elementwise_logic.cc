// Logic, bits, tests and Mod.
#include <array>
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_map.h"
#include "tensor/small_float.h"

namespace weft::cpu {
namespace {

using WholeTypes =
    TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;

template <typename Types, typename Fn>
KernelFactory OfTwo(Fn fn) {
  return [fn](const PrepareContext& context) {
    return PrepareByDType(context, context.InputDType(0), Types(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using T = decltype(zero);
                            return MakeMapOfTwo<T, T, T>(
                                PlanOfTwo(context), context.threads(), kArithmeticNanoseconds,
                                [fn](T a, T b) { return static_cast<T>(fn(a, b)); });
                          });
  };
}

using Bool = TypeList<bool>;
WEFT_REGISTER_KERNEL("", "And", DeviceKind::kCpu,
                     OfTwo<Bool>([](bool a, bool b) { return a && b; }));
WEFT_REGISTER_KERNEL("", "Or", DeviceKind::kCpu,
                     OfTwo<Bool>([](bool a, bool b) { return a || b; }));
WEFT_REGISTER_KERNEL("", "Xor", DeviceKind::kCpu,
                     OfTwo<Bool>([](bool a, bool b) { return a != b; }));
WEFT_REGISTER_KERNEL("", "BitwiseAnd", DeviceKind::kCpu,
                     OfTwo<WholeTypes>([](auto a, auto b) { return a & b; }));
WEFT_REGISTER_KERNEL("", "BitwiseOr", DeviceKind::kCpu,
                     OfTwo<WholeTypes>([](auto a, auto b) { return a | b; }));
WEFT_REGISTER_KERNEL("", "BitwiseXor", DeviceKind::kCpu,
                     OfTwo<WholeTypes>([](auto a, auto b) { return a ^ b; }));

// Bits shifted in from the right are 0, from the left copies of the sign; a count outside of the
// width shifts all of them.
struct ShiftLeft {
  template <typename T>
  T operator()(T value, T count) const {
    if (count < 0 || static_cast<uint64_t>(count) >= 8 * sizeof(T)) return 0;
    return static_cast<T>(static_cast<uint64_t>(value) << count);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T value, T count) const {
    if (count < 0 || static_cast<uint64_t>(count) >= 8 * sizeof(T)) {
      return value < 0 ? static_cast<T>(-1) : T{0};
    }
    return static_cast<T>(value >> count);
  }
};
WEFT_REGISTER_KERNEL("", "BitShift", DeviceKind::kCpu, [](const PrepareContext& context) {
  return context.attributes().String("direction", "") == "LEFT"
             ? OfTwo<WholeTypes>(ShiftLeft())(context)
             : OfTwo<WholeTypes>(ShiftRight())(context);
});

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBitwiseNot(const PrepareContext& context) {
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), WholeTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeMap<T, T>(elements, context.threads(), kArithmeticNanoseconds,
                                               [](T x) { return static_cast<T>(~x); });
                        });
}
WEFT_REGISTER_KERNEL("", "BitwiseNot", DeviceKind::kCpu, PrepareBitwiseNot);

// ---- IsNaN and IsInf.

// The answers for all codes of an 8-bit float type.
template <typename Fn>
std::unique_ptr<Kernel> MakeTestByCode(DType dtype, int64_t elements, int threads, Fn test) {
  std::array<bool, 256> answers;
  for (uint32_t code = 0; code < answers.size(); ++code) {
    answers[code] = test(DecodeSmallFloat(dtype, code));
  }
  return MakeMap<uint8_t, bool>(elements, threads, 0.5,
                                [answers](uint8_t code) { return answers[code]; });
}

template <typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareTest(const PrepareContext& context, Fn test) {
  const int64_t elements = context.OutputShape(0).num_elements();
  const DType dtype = context.InputDType(0);
  const int threads = context.threads();
  if (DTypeBits(dtype) == 8 && IsSmallFloat(dtype)) {
    return MakeTestByCode(dtype, elements, threads, test);
  }
  return PrepareByDType(context, dtype, FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeMap<decltype(zero), bool>(elements, threads, 0.5, test);
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareIsNan(const PrepareContext& context) {
  return PrepareTest(context, [](auto x) { return std::isnan(x); });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareIsInf(const PrepareContext& context) {
  const bool negative = context.attributes().Int("detect_negative", 1) != 0;
  const bool positive = context.attributes().Int("detect_positive", 1) != 0;
  return PrepareTest(context,
                     [=](auto x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

WEFT_REGISTER_KERNEL("", "IsNaN", DeviceKind::kCpu, PrepareIsNan);
WEFT_REGISTER_KERNEL("", "IsInf", DeviceKind::kCpu, PrepareIsInf);

// ---- Mod.

// The remainder with the sign of the dividend (`truncated`) or of the divisor.
template <typename C>
C Remainder(C a, C b, bool truncated) {
  if constexpr (std::is_integral_v<C>) {
    if (std::is_signed_v<C> && b == static_cast<C>(-1)) return 0;  // the smallest by -1 overflows
    const C rest = static_cast<C>(a % b);
    return !truncated && rest != 0 && (rest < 0) != (b < 0) ? static_cast<C>(rest + b) : rest;
  } else {
    const C rest = std::fmod(a, b);
    if (truncated) return rest;
    if (rest == 0) return std::copysign(C{0}, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  }
}

template <typename T>
absl::Status CheckDivisor(const T* divisor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    if (divisor[i] == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "remainder of a division of whole numbers by zero: element ", i, " of B is 0"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
std::unique_ptr<Kernel> MakeMod(const PrepareContext& context, bool truncated) {
  using C = ComputeType<T>;
  std::unique_ptr<Kernel> map =
      MakeMapOfTwo<T, T, T>(PlanOfTwo(context), context.threads(), kScalarFunctionNanoseconds,
                            [truncated](C a, C b) { return Remainder<C>(a, b, truncated); });
  if constexpr (!std::is_integral_v<T>) return map;
  class CheckedMod final : public Kernel {
   public:
    CheckedMod(std::unique_ptr<Kernel> map, int64_t divisors)
        : map_(std::move(map)), divisors_(divisors) {}
    absl::Status Run(const KernelContext& run) override {
      if constexpr (std::is_integral_v<T>) {
        const absl::Status status = CheckDivisor(Input<T>(run, 1), divisors_);
        if (!status.ok()) return status;
      }
      return map_->Run(run);
    }

   private:
    std::unique_ptr<Kernel> map_;
    int64_t divisors_;
  };
  return std::make_unique<CheckedMod>(std::move(map), context.InputShape(1).num_elements());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMod(const PrepareContext& context) {
  const bool truncated = context.attributes().Int("fmod", 0) != 0;
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeMod<decltype(zero)>(context, truncated);
                        });
}
WEFT_REGISTER_KERNEL("", "Mod", DeviceKind::kCpu, PrepareMod);

}  // namespace
}  // namespace weft::cpu
