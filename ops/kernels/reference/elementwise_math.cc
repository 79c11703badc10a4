// Reference kernels of functions of one operand beyond the basic ones, and of the variadic ops.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

#define WEFT_REFERENCE_FUNCTION(op, expression)                                                    \
  WEFT_REGISTER_REFERENCE_KERNEL("", op,                                                           \
                                 ReferenceElementwise([](const std::vector<double>& v) -> double { \
                                   const double x = v[0];                                          \
                                   return expression;                                              \
                                 }))

WEFT_REFERENCE_FUNCTION("Sin", std::sin(x));
WEFT_REFERENCE_FUNCTION("Cos", std::cos(x));
WEFT_REFERENCE_FUNCTION("Tan", std::tan(x));
WEFT_REFERENCE_FUNCTION("Asin", std::asin(x));
WEFT_REFERENCE_FUNCTION("Acos", std::acos(x));
WEFT_REFERENCE_FUNCTION("Atan", std::atan(x));
WEFT_REFERENCE_FUNCTION("Sinh", std::sinh(x));
WEFT_REFERENCE_FUNCTION("Cosh", std::cosh(x));
WEFT_REFERENCE_FUNCTION("Asinh", std::asinh(x));
WEFT_REFERENCE_FUNCTION("Acosh", std::acosh(x));
WEFT_REFERENCE_FUNCTION("Atanh", std::atanh(x));
WEFT_REFERENCE_FUNCTION("Ceil", std::ceil(x));
WEFT_REFERENCE_FUNCTION("Floor", std::floor(x));
WEFT_REFERENCE_FUNCTION("Round", std::nearbyint(x));
WEFT_REFERENCE_FUNCTION("HardSwish", x* std::clamp(x / 6 + 0.5, 0.0, 1.0));
WEFT_REFERENCE_FUNCTION("Softplus", x > 30 ? x : std::log1p(std::exp(x)));
WEFT_REFERENCE_FUNCTION("Softsign", x / (1 + std::abs(x)));
WEFT_REFERENCE_FUNCTION("Mish", x* std::tanh(x > 30 ? x : std::log1p(std::exp(x))));
WEFT_REFERENCE_FUNCTION("PRelu", x < 0 ? x * v[1] : x);
WEFT_REFERENCE_FUNCTION("LessOrEqual", x <= v[1]);
WEFT_REFERENCE_FUNCTION("GreaterOrEqual", x >= v[1]);
WEFT_REFERENCE_FUNCTION("And", x != 0 && v[1] != 0);
WEFT_REFERENCE_FUNCTION("Or", x != 0 || v[1] != 0);
WEFT_REFERENCE_FUNCTION("Xor", (x != 0) != (v[1] != 0));
WEFT_REFERENCE_FUNCTION("BitwiseAnd",
                        static_cast<double>(static_cast<int64_t>(x) & static_cast<int64_t>(v[1])));
WEFT_REFERENCE_FUNCTION("BitwiseOr",
                        static_cast<double>(static_cast<int64_t>(x) | static_cast<int64_t>(v[1])));
WEFT_REFERENCE_FUNCTION("BitwiseXor",
                        static_cast<double>(static_cast<int64_t>(x) ^ static_cast<int64_t>(v[1])));
WEFT_REFERENCE_FUNCTION("BitwiseNot", -x - 1);
WEFT_REFERENCE_FUNCTION("IsNaN", std::isnan(x));

double Total(const std::vector<double>& v) {
  double total = 0;
  for (const double x : v) total += x;
  return total;
}
WEFT_REFERENCE_FUNCTION("Sum", x * 0 + Total(v));
WEFT_REFERENCE_FUNCTION("Mean", x * 0 + Total(v) / static_cast<double>(v.size()));
WEFT_REFERENCE_FUNCTION("Max", x * 0 + *std::max_element(v.begin(), v.end()));
WEFT_REFERENCE_FUNCTION("Min", x * 0 + *std::min_element(v.begin(), v.end()));

#undef WEFT_REFERENCE_FUNCTION

// ---- Functions with attributes: fn(x, attributes).

using ParametricFn = double (*)(double x, const Attributes& attributes);
KernelFactory Parametric(ParametricFn fn) {
  return ReferenceKernel([fn](ReferenceCall& call) {
    const ReferenceOperand& x = call.input(0);
    for (int64_t i = 0; i < x.size(); ++i) call.output(0)[i] = fn(x[i], call.attributes());
    return absl::OkStatus();
  });
}

WEFT_REGISTER_REFERENCE_KERNEL("", "LeakyRelu", Parametric([](double x, const Attributes& a) {
                                 return x < 0 ? a.Float("alpha", 0.01f) * x : x;
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Elu", Parametric([](double x, const Attributes& a) {
                                 return x < 0 ? a.Float("alpha", 1) * std::expm1(x) : x;
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Celu", Parametric([](double x, const Attributes& a) {
                                 const double alpha = a.Float("alpha", 1);
                                 return x < 0 ? alpha * std::expm1(x / alpha) : x;
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Selu", Parametric([](double x, const Attributes& a) {
                                 const double alpha = a.Float("alpha", 1.67326319217681884765625f);
                                 const double gamma = a.Float("gamma", 1.05070102214813232421875f);
                                 return gamma * (x < 0 ? alpha * std::expm1(x) : x);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "HardSigmoid", Parametric([](double x, const Attributes& a) {
                                 const double y = static_cast<double>(a.Float("alpha", 0.2f)) * x +
                                                  static_cast<double>(a.Float("beta", 0.5f));
                                 return std::clamp(y, 0.0, 1.0);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Swish", Parametric([](double x, const Attributes& a) {
                                 return x / (1 + std::exp(-a.Float("alpha", 1) * x));
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "SwiGLU", ReferenceKernel([](ReferenceCall& call) {
                                 const double alpha = call.attributes().Float("alpha", 1);
                                 for (int64_t i = 0; i < call.input(0).size(); ++i) {
                                   const double gate = call.input(0)[i];
                                   call.output(0)[i] =
                                       gate / (1 + std::exp(-alpha * gate)) * call.input(1)[i];
                                 }
                                 return absl::OkStatus();
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "ThresholdedRelu", Parametric([](double x, const Attributes& a) {
                                 return x > a.Float("alpha", 1) ? x : 0;
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Shrink", Parametric([](double x, const Attributes& a) {
                                 const double threshold = a.Float("lambd", 0.5f);
                                 const double bias = a.Float("bias", 0);
                                 return x < -threshold ? x + bias : x > threshold ? x - bias : 0;
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "Gelu", Parametric([](double x, const Attributes& a) {
                                 if (a.String("approximate", "none") == "tanh") {
                                   const double u = std::sqrt(2 * std::numbers::inv_pi) *
                                                    (x + 0.044715 * x * x * x);
                                   return x / 2 * (1 + std::tanh(u));
                                 }
                                 return x / 2 * std::erfc(-x / std::numbers::sqrt2);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "IsInf", Parametric([](double x, const Attributes& a) -> double {
                                 const char* name = x < 0 ? "detect_negative" : "detect_positive";
                                 return std::isinf(x) && a.Int(name, 1) != 0;
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "Clip", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& x = call.input(0);
                                 for (int64_t i = 0; i < x.size(); ++i) {
                                   double y = x[i];
                                   if (call.has_input(1)) y = std::max(y, call.input(1)[0]);
                                   if (call.has_input(2)) y = std::min(y, call.input(2)[0]);
                                   call.output(0)[i] = y;
                                 }
                                 return absl::OkStatus();
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "Mod", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& a = call.input(0);
                                 const ReferenceOperand& b = call.input(1);
                                 ReferenceOperand& c = call.output(0);
                                 const bool truncated = call.attributes().Int("fmod", 0) != 0;
                                 for (int64_t i = 0; i < c.size(); ++i) {
                                   const double x = a[BroadcastOffset(a.shape, c.shape, i)];
                                   const double y = b[BroadcastOffset(b.shape, c.shape, i)];
                                   const double quotient = x / y;
                                   c[i] =
                                       truncated ? std::fmod(x, y) : x - y * std::floor(quotient);
                                 }
                                 return absl::OkStatus();
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "BitShift", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& a = call.input(0);
                                 const ReferenceOperand& b = call.input(1);
                                 ReferenceOperand& c = call.output(0);
                                 const double sign =
                                     call.attributes().String("direction", "") == "LEFT" ? 1 : -1;
                                 for (int64_t i = 0; i < c.size(); ++i) {
                                   const double count = b[BroadcastOffset(b.shape, c.shape, i)];
                                   c[i] = std::floor(a[BroadcastOffset(a.shape, c.shape, i)] *
                                                     std::exp2(sign * count));
                                 }
                                 return absl::OkStatus();
                               }));

// The bits of a whole number that is not negative.
WEFT_REGISTER_REFERENCE_KERNEL("", "BitCast",
                               ReferenceElementwise([](const std::vector<double>& v) {
                                 return v[0];
                               }));

// Outside of training.
WEFT_REGISTER_REFERENCE_KERNEL("", "Dropout", ReferenceKernel([](ReferenceCall& call) {
                                 if (call.has_input(2) && call.input(2)[0] != 0) {
                                   return absl::UnimplementedError("random numbers");
                                 }
                                 call.output(0).values = call.input(0).values;
                                 if (call.has_output(1)) {
                                   call.output(1).values.assign(call.input(0).size(), 1);
                                 }
                                 return absl::OkStatus();
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "DropoutGrad", ReferenceKernel([](ReferenceCall& call) {
                                 const bool training = call.has_input(3) && call.input(3)[0] != 0;
                                 const double ratio = !training           ? 0
                                                      : call.has_input(2) ? call.input(2)[0]
                                                                          : 0.5;
                                 for (int64_t i = 0; i < call.input(0).size(); ++i) {
                                   call.output(0)[i] =
                                       call.input(1)[i] != 0 ? call.input(0)[i] / (1 - ratio) : 0;
                                 }
                                 return absl::OkStatus();
                               }));

}  // namespace
}  // namespace weft::cpu
