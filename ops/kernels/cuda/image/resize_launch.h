// Launches of ops/kernels/cuda/image/resize.cu. Each returns 0 or CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// One axis of [outer, input, inner] becomes `output` sums. The tables are on the device.
struct AxisPassCall {
  int64_t outer = 1;
  int64_t input = 0;
  int64_t output = 0;
  int64_t inner = 1;
  const void* starts = nullptr;   // int64, output + 1
  const void* indices = nullptr;  // int64
  const void* weights = nullptr;  // of the type of sums
};
// sums: float32 or float64, that of x, y and weights.
int LaunchAxisPass(LaunchQueue queue, DType sums, const AxisPassCall& call, const void* x, void* y);

// `count` elements between a type of images (numbers or bool) and that of sums.
int LaunchWidenImage(LaunchQueue queue, DType dtype, DType sums, const void* x, void* y,
                     int64_t count);
int LaunchNarrowImage(LaunchQueue queue, DType dtype, DType sums, const void* x, void* y,
                      int64_t count);

inline constexpr int kMaxResizedAxes = 8;

// Axes of an output, minor first, and where the elements along them come from.
struct ResizedAxes {
  int axes = 0;
  int64_t count = 0;  // of the output
  int64_t sizes[kMaxResizedAxes] = {};
  int64_t strides[kMaxResizedAxes] = {};  // of the input
  int64_t tables[kMaxResizedAxes] = {};   // where the axis' begins; below 0: none
};
// `bytes`: of an element, 1 to 16. `fill`: 16 bytes that begin with the element for what lies
// outside. x may be null: then only that is written.
int LaunchNearest(LaunchQueue queue, int bytes, const ResizedAxes& axes, const int64_t* tables,
                  const void* fill, const void* x, void* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_LAUNCH_H_
