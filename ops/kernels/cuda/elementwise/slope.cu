// Gradients of functions of one element.
#include "ops/kernels/cuda/elementwise/activation_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {

BinaryLaunch FindSlope(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kReluGrad:
      return BinaryByType<ReluGradOp>(dtype, Floats());
    case BinaryFunction::kSigmoidGrad:
      return BinaryByType<SigmoidGradOp>(dtype, Floats());
    case BinaryFunction::kTanhGrad:
      return BinaryByType<TanhGradOp>(dtype, Floats());
    case BinaryFunction::kErfGrad:
      return BinaryByType<ErfGradOp>(dtype, Floats());
    case BinaryFunction::kGeluGrad:
      return BinaryByType<GeluGradOp>(dtype, Floats());
    case BinaryFunction::kTanhGeluGrad:
      return BinaryByType<TanhGeluGradOp>(dtype, Floats());
    case BinaryFunction::kSwishGrad:
      return BinaryByType<SwishGradOp>(dtype, Floats());
    default:
      return {};
  }
}

}  // namespace weft::cuda
