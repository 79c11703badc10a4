// Reference kernels of the elementwise ops.
#include <cmath>
#include <numbers>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

#define WEFT_REFERENCE_ELEMENTWISE(domain, op, expression) \
  WEFT_REGISTER_REFERENCE_KERNEL(                          \
      domain, op,                                          \
      ReferenceElementwise([](const std::vector<double>& v) -> double { return expression; }))

double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double TanhGeluSlope(double x) {
  const double scale = std::sqrt(2 * std::numbers::inv_pi);
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x) / 2;
}

WEFT_REFERENCE_ELEMENTWISE("", "Add", v[0] + v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Sub", v[0] - v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Mul", v[0] * v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Pow", std::pow(v[0], v[1]));
WEFT_REFERENCE_ELEMENTWISE("", "Neg", -v[0]);
WEFT_REFERENCE_ELEMENTWISE("", "Exp", std::exp(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Log", std::log(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Sqrt", std::sqrt(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Reciprocal", 1 / v[0]);
WEFT_REFERENCE_ELEMENTWISE("", "Abs", std::abs(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Sign", Sign(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Erf", std::erf(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Relu", v[0] < 0 ? 0 : v[0]);
WEFT_REFERENCE_ELEMENTWISE("", "Sigmoid", Sigmoid(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Tanh", std::tanh(v[0]));
WEFT_REFERENCE_ELEMENTWISE("", "Equal", v[0] == v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Less", v[0] < v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Greater", v[0] > v[1]);
WEFT_REFERENCE_ELEMENTWISE("", "Not", v[0] == 0);
WEFT_REFERENCE_ELEMENTWISE("", "Where", v[0] != 0 ? v[1] : v[2]);
WEFT_REFERENCE_ELEMENTWISE("", "Cast", v[0]);
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "ReluGrad", v[1] > 0 ? v[0] : 0);
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "SigmoidGrad", v[0] * v[1] * (1 - v[1]));
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "TanhGrad", v[0] * (1 - v[1] * v[1]));
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "ErfGrad",
                           v[0] * 2 * std::numbers::inv_sqrtpi * std::exp(-v[1] * v[1]));
// The textbook forms: Phi(x) + x phi(x); (1 + t) / 2 + x (1 - t^2) u' / 2 with t = tanh(u); and the
// derivative of x / (1 + e^-x).
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "GeluGrad",
                           v[0] * (std::erfc(-v[1] / std::numbers::sqrt2) / 2 +
                                   v[1] * std::exp(-v[1] * v[1] / 2) * std::numbers::inv_sqrtpi /
                                       std::numbers::sqrt2));
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "TanhGeluGrad", v[0] * TanhGeluSlope(v[1]));
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "SwishGrad",
                           v[0] * (1 + std::exp(-v[1]) + v[1] * std::exp(-v[1])) /
                               ((1 + std::exp(-v[1])) * (1 + std::exp(-v[1]))));
WEFT_REFERENCE_ELEMENTWISE("ai.weft", "SquaredErrorGrad", 2 * v[0] * (v[1] - v[2]));

#undef WEFT_REFERENCE_ELEMENTWISE

// Whole numbers divide towards zero.
WEFT_REGISTER_REFERENCE_KERNEL("", "Div", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& a = call.input(0);
                                 const ReferenceOperand& b = call.input(1);
                                 ReferenceOperand& c = call.output(0);
                                 for (int64_t i = 0; i < c.size(); ++i) {
                                   const double divisor = b[BroadcastOffset(b.shape, c.shape, i)];
                                   if (divisor == 0 && IsInteger(c.dtype))
                                     return absl::InvalidArgumentError("division by zero");
                                   const double quotient =
                                       a[BroadcastOffset(a.shape, c.shape, i)] / divisor;
                                   c[i] = IsInteger(c.dtype) ? std::trunc(quotient) : quotient;
                                 }
                                 return absl::OkStatus();
                               }));

}  // namespace
}  // namespace weft::cpu
