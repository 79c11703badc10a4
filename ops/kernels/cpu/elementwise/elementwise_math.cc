// Trigonometric, hyperbolic and rounding functions. Rounding is vectorized; the others are the
// library's, whose accuracy holds over the whole range of the arguments.
#include <cmath>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_map.h"
#include "ops/kernels/cpu/elementwise/activation_simd.h"

namespace weft::cpu {
namespace {

// A functor, since a template cannot take the name of an overloaded function.
template <typename Fn>
KernelFactory Function(Fn fn) {
  return [fn](const PrepareContext& context) {
    const int64_t elements = context.OutputShape(0).num_elements();
    return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using T = decltype(zero);
                            return MakeMap<T, T>(elements, context.threads(),
                                                 kScalarFunctionNanoseconds, fn);
                          });
  };
}

template <typename Fn>
KernelFactory Rounding(ActivationOp op, Fn fn) {
  return [op, fn](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    if (context.InputDType(0) != DType::kFloat32) return Function(fn)(context);
    return MakeFloatActivation(op, {}, context.OutputShape(0).num_elements(), context.threads());
  };
}

WEFT_REGISTER_KERNEL("", "Sin", DeviceKind::kCpu, Function([](auto x) { return std::sin(x); }));
WEFT_REGISTER_KERNEL("", "Cos", DeviceKind::kCpu, Function([](auto x) { return std::cos(x); }));
WEFT_REGISTER_KERNEL("", "Tan", DeviceKind::kCpu, Function([](auto x) { return std::tan(x); }));
WEFT_REGISTER_KERNEL("", "Asin", DeviceKind::kCpu, Function([](auto x) { return std::asin(x); }));
WEFT_REGISTER_KERNEL("", "Acos", DeviceKind::kCpu, Function([](auto x) { return std::acos(x); }));
WEFT_REGISTER_KERNEL("", "Atan", DeviceKind::kCpu, Function([](auto x) { return std::atan(x); }));
WEFT_REGISTER_KERNEL("", "Sinh", DeviceKind::kCpu, Function([](auto x) { return std::sinh(x); }));
WEFT_REGISTER_KERNEL("", "Cosh", DeviceKind::kCpu, Function([](auto x) { return std::cosh(x); }));
WEFT_REGISTER_KERNEL("", "Asinh", DeviceKind::kCpu, Function([](auto x) { return std::asinh(x); }));
WEFT_REGISTER_KERNEL("", "Acosh", DeviceKind::kCpu, Function([](auto x) { return std::acosh(x); }));
WEFT_REGISTER_KERNEL("", "Atanh", DeviceKind::kCpu, Function([](auto x) { return std::atanh(x); }));

WEFT_REGISTER_KERNEL("", "Ceil", DeviceKind::kCpu,
                     Rounding(ActivationOp::kCeil, [](auto x) { return std::ceil(x); }));
WEFT_REGISTER_KERNEL("", "Floor", DeviceKind::kCpu,
                     Rounding(ActivationOp::kFloor, [](auto x) { return std::floor(x); }));
// Halves go to the even neighbour, the default of the environment.
WEFT_REGISTER_KERNEL("", "Round", DeviceKind::kCpu,
                     Rounding(ActivationOp::kRound, [](auto x) { return std::nearbyint(x); }));

}  // namespace
}  // namespace weft::cpu
