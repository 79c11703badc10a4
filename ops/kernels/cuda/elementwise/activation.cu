// Activations.
#include "ops/kernels/cuda/elementwise/activation_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {

UnaryLaunch FindActivation(UnaryFunction function, DType dtype) {
  switch (function) {
    case UnaryFunction::kLeakyRelu:
      return UnaryByType<LeakyReluOp>(dtype, Floats());
    case UnaryFunction::kElu:
      return UnaryByType<EluOp>(dtype, Floats());
    case UnaryFunction::kHardSigmoid:
      return UnaryByType<HardSigmoidOp>(dtype, Floats());
    case UnaryFunction::kHardSwish:
      return UnaryByType<HardSwishOp>(dtype, Floats());
    case UnaryFunction::kSoftplus:
      return UnaryByType<SoftplusOp>(dtype, Floats());
    case UnaryFunction::kSoftsign:
      return UnaryByType<SoftsignOp>(dtype, Floats());
    case UnaryFunction::kMish:
      return UnaryByType<MishOp>(dtype, Floats());
    case UnaryFunction::kSwish:
      return UnaryByType<SwishOp>(dtype, Floats());
    case UnaryFunction::kThresholdedRelu:
      return UnaryByType<ThresholdedReluOp>(dtype, Floats());
    case UnaryFunction::kGelu:
      return UnaryByType<GeluOp>(dtype, Floats());
    case UnaryFunction::kTanhGelu:
      return UnaryByType<TanhGeluOp>(dtype, Floats());
    case UnaryFunction::kSigmoid:
      return UnaryByType<SigmoidOp>(dtype, Floats());
    case UnaryFunction::kTanh:
      return UnaryByType<TanhOp>(dtype, Floats());
    default:
      return nullptr;
  }
}

}  // namespace weft::cuda
