// Operators of one operand, and Clip.
#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

using FindUnary = UnaryLaunch (*)(UnaryFunction function, DType dtype);
using ParametersOf = FunctionParameters (*)(const Attributes& attributes);

FunctionParameters NoParameters(const Attributes& /*attributes*/) { return {}; }

KernelFactory Unary(FindUnary find, UnaryFunction function,
                    ParametersOf parameters_of = NoParameters) {
  return [=](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const UnaryLaunch launch = find(function, context.InputDType(0));
    if (launch == nullptr) {
      return context.Unimplemented(
          absl::StrCat("no kernel for ", std::string(DTypeName(context.InputDType(0)))));
    }
    const int64_t count = context.OutputShape(0).num_elements();
    return MakeKernel([launch, count, op = context.node().op,
                       parameters = parameters_of(context.attributes())](const KernelContext& run) {
      return LaunchStatus(launch({QueueOf(run), run.inputs[0], run.outputs[0], count, parameters}),
                          op);
    });
  };
}

KernelFactory Number(UnaryFunction function, ParametersOf parameters_of = NoParameters) {
  return Unary(FindNumberFunction, function, parameters_of);
}
KernelFactory Activation(UnaryFunction function, ParametersOf parameters_of = NoParameters) {
  return Unary(FindActivation, function, parameters_of);
}
KernelFactory MathFunction(UnaryFunction function) { return Unary(FindMathFunction, function); }

WEFT_REGISTER_KERNEL("", "Neg", DeviceKind::kCuda, Number(UnaryFunction::kNeg));
WEFT_REGISTER_KERNEL("", "Abs", DeviceKind::kCuda, Number(UnaryFunction::kAbs));
WEFT_REGISTER_KERNEL("", "Sign", DeviceKind::kCuda, Number(UnaryFunction::kSign));
WEFT_REGISTER_KERNEL("", "Relu", DeviceKind::kCuda, Number(UnaryFunction::kRelu));
WEFT_REGISTER_KERNEL("", "BitwiseNot", DeviceKind::kCuda, Number(UnaryFunction::kBitwiseNot));
WEFT_REGISTER_KERNEL("", "Not", DeviceKind::kCuda, Number(UnaryFunction::kNot));
WEFT_REGISTER_KERNEL("", "IsNaN", DeviceKind::kCuda, Number(UnaryFunction::kIsNan));
WEFT_REGISTER_KERNEL("", "IsInf", DeviceKind::kCuda,
                     Number(UnaryFunction::kIsInf, [](const Attributes& attributes) {
                       return FunctionParameters{
                           attributes.Int("detect_negative", 1) != 0 ? 1.0 : 0.0,
                           attributes.Int("detect_positive", 1) != 0 ? 1.0 : 0.0};
                     }));
WEFT_REGISTER_KERNEL(
    "", "Shrink", DeviceKind::kCuda,
    Number(UnaryFunction::kShrink, [](const Attributes& attributes) {
      return FunctionParameters{attributes.Float("bias", 0), attributes.Float("lambd", 0.5f)};
    }));

WEFT_REGISTER_KERNEL("", "Exp", DeviceKind::kCuda, MathFunction(UnaryFunction::kExp));
WEFT_REGISTER_KERNEL("", "Log", DeviceKind::kCuda, MathFunction(UnaryFunction::kLog));
WEFT_REGISTER_KERNEL("", "Sqrt", DeviceKind::kCuda, MathFunction(UnaryFunction::kSqrt));
WEFT_REGISTER_KERNEL("", "Reciprocal", DeviceKind::kCuda, MathFunction(UnaryFunction::kReciprocal));
WEFT_REGISTER_KERNEL("", "Erf", DeviceKind::kCuda, MathFunction(UnaryFunction::kErf));
WEFT_REGISTER_KERNEL("", "Sin", DeviceKind::kCuda, MathFunction(UnaryFunction::kSin));
WEFT_REGISTER_KERNEL("", "Cos", DeviceKind::kCuda, MathFunction(UnaryFunction::kCos));
WEFT_REGISTER_KERNEL("", "Tan", DeviceKind::kCuda, MathFunction(UnaryFunction::kTan));
WEFT_REGISTER_KERNEL("", "Asin", DeviceKind::kCuda, MathFunction(UnaryFunction::kAsin));
WEFT_REGISTER_KERNEL("", "Acos", DeviceKind::kCuda, MathFunction(UnaryFunction::kAcos));
WEFT_REGISTER_KERNEL("", "Atan", DeviceKind::kCuda, MathFunction(UnaryFunction::kAtan));
WEFT_REGISTER_KERNEL("", "Sinh", DeviceKind::kCuda, MathFunction(UnaryFunction::kSinh));
WEFT_REGISTER_KERNEL("", "Cosh", DeviceKind::kCuda, MathFunction(UnaryFunction::kCosh));
WEFT_REGISTER_KERNEL("", "Asinh", DeviceKind::kCuda, MathFunction(UnaryFunction::kAsinh));
WEFT_REGISTER_KERNEL("", "Acosh", DeviceKind::kCuda, MathFunction(UnaryFunction::kAcosh));
WEFT_REGISTER_KERNEL("", "Atanh", DeviceKind::kCuda, MathFunction(UnaryFunction::kAtanh));
WEFT_REGISTER_KERNEL("", "Ceil", DeviceKind::kCuda, MathFunction(UnaryFunction::kCeil));
WEFT_REGISTER_KERNEL("", "Floor", DeviceKind::kCuda, MathFunction(UnaryFunction::kFloor));
WEFT_REGISTER_KERNEL("", "Round", DeviceKind::kCuda, MathFunction(UnaryFunction::kRound));

// ---- Activations.

// alpha with this default, in hundredths.
template <int kHundredths>
FunctionParameters AlphaOf(const Attributes& attributes) {
  return {attributes.Float("alpha", kHundredths / 100.0f)};
}

FunctionParameters EluParametersOf(const Attributes& attributes) {
  return {attributes.Float("alpha", 1), 1, 1};
}
FunctionParameters CeluParametersOf(const Attributes& attributes) {
  const double alpha = attributes.Float("alpha", 1);
  return {alpha, 1 / alpha, 1};
}
FunctionParameters SeluParametersOf(const Attributes& attributes) {
  const double alpha = attributes.Float("alpha", 1.67326319217681884765625f);
  const double gamma = attributes.Float("gamma", 1.05070102214813232421875f);
  return {alpha * gamma, 1, gamma};
}
FunctionParameters HardSigmoidParametersOf(const Attributes& attributes) {
  return {attributes.Float("alpha", 0.2f), attributes.Float("beta", 0.5f)};
}

WEFT_REGISTER_KERNEL("", "Sigmoid", DeviceKind::kCuda, Activation(UnaryFunction::kSigmoid));
WEFT_REGISTER_KERNEL("", "Tanh", DeviceKind::kCuda, Activation(UnaryFunction::kTanh));
WEFT_REGISTER_KERNEL("", "LeakyRelu", DeviceKind::kCuda,
                     Activation(UnaryFunction::kLeakyRelu, AlphaOf<1>));
WEFT_REGISTER_KERNEL("", "Elu", DeviceKind::kCuda,
                     Activation(UnaryFunction::kElu, EluParametersOf));
WEFT_REGISTER_KERNEL("", "Celu", DeviceKind::kCuda,
                     Activation(UnaryFunction::kElu, CeluParametersOf));
WEFT_REGISTER_KERNEL("", "Selu", DeviceKind::kCuda,
                     Activation(UnaryFunction::kElu, SeluParametersOf));
WEFT_REGISTER_KERNEL("", "HardSigmoid", DeviceKind::kCuda,
                     Activation(UnaryFunction::kHardSigmoid, HardSigmoidParametersOf));
WEFT_REGISTER_KERNEL("", "HardSwish", DeviceKind::kCuda, Activation(UnaryFunction::kHardSwish));
WEFT_REGISTER_KERNEL("", "Softplus", DeviceKind::kCuda, Activation(UnaryFunction::kSoftplus));
WEFT_REGISTER_KERNEL("", "Softsign", DeviceKind::kCuda, Activation(UnaryFunction::kSoftsign));
WEFT_REGISTER_KERNEL("", "Mish", DeviceKind::kCuda, Activation(UnaryFunction::kMish));
WEFT_REGISTER_KERNEL("", "Swish", DeviceKind::kCuda,
                     Activation(UnaryFunction::kSwish, AlphaOf<100>));
WEFT_REGISTER_KERNEL("", "ThresholdedRelu", DeviceKind::kCuda,
                     Activation(UnaryFunction::kThresholdedRelu, AlphaOf<100>));
WEFT_REGISTER_KERNEL("", "Gelu", DeviceKind::kCuda, [](const PrepareContext& context) {
  const bool by_tanh = context.attributes().String("approximate", "none") == "tanh";
  return Activation(by_tanh ? UnaryFunction::kTanhGelu : UnaryFunction::kGelu)(context);
});

// ---- Clip: the bounds stay on the device.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareClip(const PrepareContext& context) {
  for (const int i : {1, 2}) {
    if (context.HasInput(i) && context.InputShape(i).num_elements() != 1) {
      return context.InvalidArgument("a bound must have one element");
    }
  }
  const ClipLaunch launch = FindClip(context.InputDType(0));
  if (launch == nullptr) {
    return context.Unimplemented(
        absl::StrCat("no kernel for ", std::string(DTypeName(context.InputDType(0)))));
  }
  const int64_t count = context.OutputShape(0).num_elements();
  const bool has_low = context.HasInput(1);
  const bool has_high = context.HasInput(2);
  return MakeKernel([=](const KernelContext& run) {
    return LaunchStatus(launch({QueueOf(run), run.inputs[0], has_low ? run.inputs[1] : nullptr,
                                has_high ? run.inputs[2] : nullptr, run.outputs[0], count}),
                        "Clip");
  });
}
WEFT_REGISTER_KERNEL("", "Clip", DeviceKind::kCuda, PrepareClip);

}  // namespace
}  // namespace weft::cuda
