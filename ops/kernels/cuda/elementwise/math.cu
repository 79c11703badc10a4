// Functions of real numbers. sin, cos and tan reduce huge arguments in 32 bytes of local memory
// (CUDA's library); arguments below 10^5 do not touch it.
#include "ops/kernels/cuda/elementwise/map_grid.h"
#include "ops/kernels/cuda/elementwise/unary_ops.h"

namespace weft::cuda {

UnaryLaunch FindMathFunction(UnaryFunction function, DType dtype) {
  switch (function) {
    case UnaryFunction::kExp:
      return UnaryByType<ExpOp>(dtype, Floats());
    case UnaryFunction::kLog:
      return UnaryByType<LogOp>(dtype, Floats());
    case UnaryFunction::kSqrt:
      return UnaryByType<SqrtOp>(dtype, Floats());
    case UnaryFunction::kReciprocal:
      return UnaryByType<ReciprocalOp>(dtype, Floats());
    case UnaryFunction::kErf:
      return UnaryByType<ErfOp>(dtype, Floats());
    case UnaryFunction::kSin:
      return UnaryByType<SinOp>(dtype, Floats());
    case UnaryFunction::kCos:
      return UnaryByType<CosOp>(dtype, Floats());
    case UnaryFunction::kTan:
      return UnaryByType<TanOp>(dtype, Floats());
    case UnaryFunction::kAsin:
      return UnaryByType<AsinOp>(dtype, Floats());
    case UnaryFunction::kAcos:
      return UnaryByType<AcosOp>(dtype, Floats());
    case UnaryFunction::kAtan:
      return UnaryByType<AtanOp>(dtype, Floats());
    case UnaryFunction::kSinh:
      return UnaryByType<SinhOp>(dtype, Floats());
    case UnaryFunction::kCosh:
      return UnaryByType<CoshOp>(dtype, Floats());
    case UnaryFunction::kAsinh:
      return UnaryByType<AsinhOp>(dtype, Floats());
    case UnaryFunction::kAcosh:
      return UnaryByType<AcoshOp>(dtype, Floats());
    case UnaryFunction::kAtanh:
      return UnaryByType<AtanhOp>(dtype, Floats());
    case UnaryFunction::kCeil:
      return UnaryByType<CeilOp>(dtype, Floats());
    case UnaryFunction::kFloor:
      return UnaryByType<FloorOp>(dtype, Floats());
    case UnaryFunction::kRound:
      return UnaryByType<RoundOp>(dtype, Floats());
    default:
      return nullptr;
  }
}

}  // namespace weft::cuda
