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
