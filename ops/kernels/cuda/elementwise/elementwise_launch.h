// What the .cu files of this folder launch. A Find function gives the launch of an operator for an
// element type, and null where there is none; a launch returns 0 or CUDA's error number. Tensors
// are row-major and in the memory of the queue's device; counts and offsets are in elements.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ELEMENTWISE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ELEMENTWISE_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/elementwise/map_body.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Attributes of a function, by the meaning that its functor gives them.
struct FunctionParameters {
  double a = 0;
  double b = 0;
  double c = 0;
};

// ---- One operand.

enum class UnaryFunction : uint8_t {
  // number.cu
  kNeg,
  kAbs,
  kSign,
  kRelu,
  kShrink,  // a: bias, b: threshold
  kBitwiseNot,
  kNot,
  kIsNan,
  kIsInf,  // a: not 0 to find negative ones, b: positive ones
  // activation.cu
  kLeakyRelu,    // a: slope
  kElu,          // x < 0: a expm1(b x), else c x
  kHardSigmoid,  // a x + b, cut to [0, 1]
  kHardSwish,
  kSoftplus,
  kSoftsign,
  kMish,
  kSwish,            // x sigmoid(a x)
  kThresholdedRelu,  // a: threshold
  kGelu,
  kTanhGelu,
  kSigmoid,
  kTanh,
  // math.cu
  kExp,
  kLog,
  kSqrt,
  kReciprocal,
  kErf,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kCeil,
  kFloor,
  kRound,
};

// y[i] = f(x[i]) for i < count. `y` may be `x`.
struct UnaryCall {
  LaunchQueue queue;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  FunctionParameters parameters;
};
using UnaryLaunch = int (*)(const UnaryCall& call);

// By the file that defines it.
UnaryLaunch FindNumberFunction(UnaryFunction function, DType dtype);
UnaryLaunch FindActivation(UnaryFunction function, DType dtype);
UnaryLaunch FindMathFunction(UnaryFunction function, DType dtype);

// y[i] = x[i], by the rules of CastTensor (tensor/tensor.h).
struct CastCall {
  LaunchQueue queue;
  const void* x = nullptr;  // of type `from`
  void* y = nullptr;        // of type `to`
  int64_t count = 0;
  DType from = DType::kInvalid;
  DType to = DType::kInvalid;
};
using CastLaunch = int (*)(const CastCall& call);
CastLaunch FindCast(DType from, DType to);
// The same to bfloat16, towards zero.
CastLaunch FindCutOffCast(DType from);
// Bytes as they are; `count` is their number.
int LaunchCopy(const UnaryCall& call);

// y = x, but not below *low or above *high, which are of x's type; null: no bound.
struct ClipCall {
  LaunchQueue queue;
  const void* x = nullptr;
  const void* low = nullptr;
  const void* high = nullptr;
  void* y = nullptr;
  int64_t count = 0;
};
using ClipLaunch = int (*)(const ClipCall& call);
ClipLaunch FindClip(DType dtype);

// ---- Two operands that broadcast.

enum class BinaryFunction : uint8_t {
  // arithmetic.cu
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,           // the sign of the divisor
  kTruncatedMod,  // the sign of the dividend
  kPRelu,
  kSwiGlu,  // a: alpha
  // comparison.cu
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kShiftLeft,
  kShiftRight,
  // comparison.cu
  kEqual,
  kLess,
  kLessOrEqual,
  // slope.cu: (dy, x or y)
  kReluGrad,
  kSigmoidGrad,
  kTanhGrad,
  kErfGrad,
  kGeluGrad,
  kTanhGeluGrad,
  kSwishGrad,
};

// y[i] = f(a at i, b at i) for i < count.
struct BinaryCall {
  LaunchQueue queue;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  int32_t count = 0;
  // As BroadcastPlan::HasPackets says for the width of the launch; addresses are looked at by it.
  bool has_packets = false;
  BroadcastMap<2> map;
  FunctionParameters parameters;
  FaultReport report;   // of a divisor that is 0
  int64_t first_b = 0;  // place in B of the element at `b`
};

struct BinaryLaunch {
  int (*launch)(const BinaryCall& call) = nullptr;  // null: there is none
  int width = 1;                                    // elements of a packet
};

BinaryLaunch FindArithmetic(BinaryFunction function, DType dtype);
BinaryLaunch FindBits(BinaryFunction function, DType dtype);
BinaryLaunch FindComparison(BinaryFunction function, DType dtype);
BinaryLaunch FindSlope(BinaryFunction function, DType dtype);
// a^b, of a's type.
BinaryLaunch FindPower(DType base, DType exponent);

// ---- More operands.

struct WhereCall {
  LaunchQueue queue;
  const void* condition = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  int32_t count = 0;
  bool has_packets = false;
  BroadcastMap<3> map;
};
struct WhereLaunch {
  int (*launch)(const WhereCall& call) = nullptr;
  int width = 1;
};
// By the bits of an element.
WhereLaunch FindWhere(int bits);

enum class Folding : uint8_t { kSum, kMean, kMax, kMin };
struct VariadicCall {
  LaunchQueue queue;
  const void* x[kMaxFolded] = {};
  void* y = nullptr;
  int32_t operands = 0;
  int32_t count = 0;
  bool has_packets = false;
  BroadcastMap<kMaxFolded> map;
};
struct VariadicLaunch {
  int (*launch)(const VariadicCall& call) = nullptr;
  int width = 1;
};
VariadicLaunch FindVariadic(Folding folding, DType dtype);

// ---- Quantized weights.

// y[n, k] = (q - zero) * scale of k's block, or of the block that groups[k] names.
struct DequantizeBlocksCall {
  LaunchQueue queue;
  const void* q = nullptr;       // [rows, blocks, block size], packed from low bits on
  const void* scales = nullptr;  // [rows, blocks] of y's type
  const void* zeros = nullptr;   // null: half of the codes
  const void* groups = nullptr;  // int32 [columns], or null
  void* y = nullptr;             // [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t block = 1;
  int bits = 4;               // 2, 4 or 8
  bool packed_zeros = false;  // codes, each row from a byte on; else of y's type
  FaultReport report;         // of a group that is no block
};
using DequantizeBlocksLaunch = int (*)(const DequantizeBlocksCall& call);
DequantizeBlocksLaunch FindDequantizeBlocks(DType dtype);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ELEMENTWISE_LAUNCH_H_
