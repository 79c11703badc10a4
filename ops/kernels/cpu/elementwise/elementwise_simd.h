// Elementwise loops on float32, vectorized for the instruction set of the machine at hand.
#ifndef WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_SIMD_H_

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

// The vectorized functions of one operand.
enum class UnaryOp : uint8_t {
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kReciprocal,
  kAbs,
  kSign,
  kErf,
  kRelu,
  kSigmoid,
  kTanh,
};

// out[i] = op(x[i]); `out` may be `x`.
void UnaryFloat(UnaryOp op, const float* x, float* out, size_t n);

// The vectorized functions of two operands.
enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kReluGrad,      // (dy, y)
  kSigmoidGrad,   // (dy, y)
  kTanhGrad,      // (dy, y)
  kErfGrad,       // (dy, x)
  kGeluGrad,      // (dy, x)
  kTanhGeluGrad,  // (dy, x)
  kSwishGrad,     // (dy, x)
};

// Which operand is one value for all of the loop.
enum class BinaryOperands : uint8_t { kArrays, kScalarA, kScalarB };

// out[i] = op(a[i], b[i]), with a[0] or b[0] throughout for a scalar; `out` may be an array
// operand.
void BinaryFloat(BinaryOp op, BinaryOperands operands, const float* a, const float* b, float* out,
                 size_t n);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_SIMD_H_
