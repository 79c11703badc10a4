// The activations of cells and their slopes. Bodies compute them, factories name them. The formulas
// are those of ops/activation.h. S: float or double.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_CELL_FUNCTION_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_CELL_FUNCTION_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// What a cell may apply to the argument of a gate: ONNX's activations.
enum class CellFunction : uint8_t {
  kRelu,
  kTanh,
  kSigmoid,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
};

// Value type. `keeps_value`: the gradient gets what a gate became, and not its argument.
struct CellActivation {
  CellFunction function = CellFunction::kTanh;
  int32_t keeps_value = 0;
  double alpha = 0;
  double beta = 0;
};

// 1 / (1 + e^-x), without overflow of the exponential.
template <typename S>
WEFT_GPU S CellSigmoid(S x) {
  const S e = std::exp(-std::abs(x));
  return (x >= 0 ? S{1} : e) / (1 + e);
}

template <typename S>
WEFT_GPU S CellValue(const CellActivation& activation, S x) {
  const S alpha = static_cast<S>(activation.alpha);
  const S beta = static_cast<S>(activation.beta);
  switch (activation.function) {
    case CellFunction::kRelu:
      return x < 0 ? S{0} : x;
    case CellFunction::kTanh:
      return std::tanh(x);
    case CellFunction::kSigmoid:
      return CellSigmoid(x);
    case CellFunction::kAffine:
      return alpha * x + beta;
    case CellFunction::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case CellFunction::kThresholdedRelu:
      return x <= alpha ? S{0} : x;
    case CellFunction::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case CellFunction::kHardSigmoid: {
      const S line = alpha * x + beta;
      return line < 0 ? S{0} : line > 1 ? S{1} : line;
    }
    case CellFunction::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case CellFunction::kSoftsign:
      return x / (1 + std::abs(x));
    case CellFunction::kSoftplus:
      return (x < 0 ? S{0} : x) + std::log1p(std::exp(-std::abs(x)));
  }
  return x;
}

// The derivative at x, whose value there is y.
template <typename S>
WEFT_GPU S CellSlope(const CellActivation& activation, S x, S y) {
  const S alpha = static_cast<S>(activation.alpha);
  switch (activation.function) {
    case CellFunction::kRelu:
      return x > 0 ? S{1} : S{0};
    case CellFunction::kTanh:
      return 1 - y * y;
    case CellFunction::kSigmoid:
      return y * (1 - y);
    case CellFunction::kAffine:
      return alpha;
    case CellFunction::kLeakyRelu:
      return x >= 0 ? S{1} : alpha;
    case CellFunction::kThresholdedRelu:
      return x > alpha ? S{1} : S{0};
    case CellFunction::kScaledTanh: {
      const S beta = static_cast<S>(activation.beta);
      const S t = std::tanh(beta * x);
      return alpha * beta * (1 - t * t);
    }
    case CellFunction::kHardSigmoid:
      return y > 0 && y < 1 ? alpha : S{0};
    case CellFunction::kElu:
      return x >= 0 ? S{1} : y + alpha;
    case CellFunction::kSoftsign: {
      const S size = 1 + std::abs(x);
      return 1 / (size * size);
    }
    case CellFunction::kSoftplus:
      return CellSigmoid(x);
  }
  return S{0};
}

template <typename S>
WEFT_GPU S CellClipped(float clip, S x) {
  const S limit = static_cast<S>(clip);
  return !(clip > 0) ? x : x < -limit ? -limit : x > limit ? limit : x;
}

// What a gate became, and its slope there.
template <typename S>
struct CellGate {
  S value;
  S slope;
};

// From what was kept of the gate.
template <typename S>
WEFT_GPU CellGate<S> KeptGate(const CellActivation& activation, float clip, S kept) {
  if (activation.keeps_value != 0) return {kept, CellSlope(activation, kept, kept)};
  const S argument = CellClipped(clip, kept);
  const S value = CellValue(activation, argument);
  const bool is_cut = clip > 0 && std::abs(kept) > static_cast<S>(clip);
  return {value, is_cut ? S{0} : CellSlope(activation, argument, value)};
}

// A gate, from its argument before clipping.
template <typename S>
WEFT_GPU S GateValue(const CellActivation& activation, float clip, S argument) {
  return CellValue(activation, CellClipped(clip, argument));
}

// What is kept of a gate.
template <typename S>
WEFT_GPU S KeptOf(const CellActivation& activation, S argument, S value) {
  return activation.keeps_value != 0 ? value : argument;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_CELL_FUNCTION_H_
