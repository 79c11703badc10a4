// Launches of ops/kernels/cuda/quantized/quantize.cu.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/quantized/code_format.h"
#include "ops/kernels/cuda/quantized/scale_map.h"

namespace weft::cuda {

// What both directions have. Pointers are those of a run; `zeros` may be null.
struct QuantizeCall {
  LaunchQueue queue;
  const void* x = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  void* y = nullptr;
  ScaleGrid grid;
  DType scale_dtype = DType::kFloat32;
  DType precision = DType::kFloat32;  // of quotients
  CodeDecoder reader;                 // of x
  CodeDecoder zero_reader;
  CodeEncoder writer;  // of y; QuantizeLinear alone
};

// y: float32, float16 or bfloat16. Each returns 0 or CUDA's error number.
int LaunchDequantize(const QuantizeCall& call, DType y);
int LaunchQuantize(const QuantizeCall& call);

struct DynamicQuantizeCall {
  LaunchQueue queue;
  const float* x = nullptr;
  uint8_t* y = nullptr;
  float* scale = nullptr;
  uint8_t* zero = nullptr;
  uint32_t* range = nullptr;  // two of workspace
  int64_t count = 0;
};
int LaunchDynamicQuantize(const DynamicQuantizeCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_LAUNCH_H_
