// Floating operands whose type is known at run time alone: for what bodies read or write seldom,
// such as one value per row or channel.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_REAL_OPERAND_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_REAL_OPERAND_H_

#include <cstdint>

#include "ops/kernels/cuda/language/scalar.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// `data` may be null: an operand that is not there.
struct RealInput {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;  // float32, float64, float16 or bfloat16
};
struct RealOutput {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
};

// Element i. REQUIRES: data is not null.
template <class Gpu>
WEFT_GPU double ReadReal(Gpu& gpu, const RealInput& operand, int64_t i) {
  if (operand.dtype == DType::kFloat64) {
    return gpu.Global(static_cast<const double*>(operand.data))[i];
  }
  if (operand.dtype == DType::kFloat16) {
    const Float16 value = gpu.Global(static_cast<const Float16*>(operand.data))[i];
    return static_cast<double>(Widen(value));
  }
  if (operand.dtype == DType::kBfloat16) {
    const Bfloat16 value = gpu.Global(static_cast<const Bfloat16*>(operand.data))[i];
    return static_cast<double>(Widen(value));
  }
  const float value = gpu.Global(static_cast<const float*>(operand.data))[i];
  return static_cast<double>(value);
}

// Rounds to nearest even. REQUIRES: data is not null.
template <class Gpu>
WEFT_GPU void WriteReal(Gpu& gpu, const RealOutput& operand, int64_t i, double value) {
  if (operand.dtype == DType::kFloat64) {
    gpu.Global(static_cast<double*>(operand.data))[i] = value;
  } else if (operand.dtype == DType::kFloat16) {
    gpu.Global(static_cast<Float16*>(operand.data))[i] = Narrow<Float16>(static_cast<float>(value));
  } else if (operand.dtype == DType::kBfloat16) {
    gpu.Global(static_cast<Bfloat16*>(operand.data))[i] =
        Narrow<Bfloat16>(static_cast<float>(value));
  } else {
    gpu.Global(static_cast<float*>(operand.data))[i] = static_cast<float>(value);
  }
}

// Labels and positions: int64, or int32.
struct IndexInput {
  const void* data = nullptr;
  bool wide = true;  // int64
};

template <class Gpu>
WEFT_GPU int64_t ReadIndex(Gpu& gpu, const IndexInput& operand, int64_t i) {
  if (operand.wide) return gpu.Global(static_cast<const int64_t*>(operand.data))[i];
  const int32_t value = gpu.Global(static_cast<const int32_t*>(operand.data))[i];
  return value;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_REAL_OPERAND_H_
