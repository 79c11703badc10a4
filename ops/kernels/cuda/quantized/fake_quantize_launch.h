// Launches of ops/kernels/cuda/quantized/fake_quantize.cu. Each returns 0 or CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/quantized/scale_map.h"

namespace weft::cuda {

struct FakeWeightCall {
  LaunchQueue queue;
  const float* w = nullptr;
  float* scales = nullptr;  // grid.scales of them
  float* y = nullptr;
  ScaleGrid grid;
  float limit = 127;  // what the largest magnitude becomes
  bool is_float8 = false;
};
int LaunchFakeWeight(const FakeWeightCall& call);

// Forward: x to y, with scale and zero_point where not null. Backward: dy and x to y.
struct FakeQuantizeCall {
  LaunchQueue queue;
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* range = nullptr;
  float* y = nullptr;
  float* scale = nullptr;
  float* zero_point = nullptr;
  int64_t count = 0;
  bool is_float8 = false;
};
int LaunchFakeQuantize(const FakeQuantizeCall& call);
int LaunchFakeQuantizeGrad(const FakeQuantizeCall& call);

struct BatchRangeCall {
  LaunchQueue queue;
  const float* x = nullptr;
  float* y = nullptr;
  uint32_t* range = nullptr;  // two of workspace
  int64_t count = 0;
  int64_t rows = 0;
  int64_t row = 0;
  float sharing = 1;
};
int LaunchBatchRange(const BatchRangeCall& call);

int LaunchUpdateRange(LaunchQueue queue, const float* range, const float* x, float* y, int64_t rows,
                      float decay);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_LAUNCH_H_
