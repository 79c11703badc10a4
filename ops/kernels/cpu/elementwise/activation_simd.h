// Activations and rounding of float32, vectorized for the instruction set of the machine at hand.
#ifndef WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ACTIVATION_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ACTIVATION_SIMD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/kernel.h"

namespace weft::cpu {

// The vectorized activation functions.
enum class ActivationOp : uint8_t {
  kCeil,
  kFloor,
  kRound,            // halves to even
  kLeakyRelu,        // x < 0 ? a x : x
  kElu,              // x < 0 ? a (e^(b x) - 1) : c x; Celu and Selu, too
  kHardSigmoid,      // max(0, min(1, a x + b))
  kHardSwish,        // x max(0, min(1, x / 6 + 1/2))
  kSoftplus,         // ln(1 + e^x)
  kSoftsign,         // x / (1 + |x|)
  kMish,             // x tanh(ln(1 + e^x))
  kSwish,            // x / (1 + e^(-a x))
  kThresholdedRelu,  // x > a ? x : 0
  kGelu,             // x (1 + erf(x / sqrt 2)) / 2
  kTanhGelu,         // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
};

// The attributes of an activation function.
struct ActivationParameters {
  float a = 0;
  float b = 0;
  float c = 0;
};

// out[i] = op(x[i]); `out` may be `x`. NaN stays NaN.
void ActivateFloat(ActivationOp op, const ActivationParameters& parameters, const float* x,
                   float* out, size_t n);

// out[i] = a[i] / (1 + e^(-alpha a[i])) b[i]; `out` may be `a` or `b`.
void SwiGluFloat(float alpha, const float* a, const float* b, float* out, size_t n);

// max(low, then min(high, x)): where the bounds cross, the upper one holds.
void ClipFloat(float low, float high, const float* x, float* out, size_t n);

// A kernel from input 0 to output 0.
std::unique_ptr<Kernel> MakeFloatActivation(ActivationOp op, const ActivationParameters& parameters,
                                            int64_t elements, int threads);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ACTIVATION_SIMD_H_
