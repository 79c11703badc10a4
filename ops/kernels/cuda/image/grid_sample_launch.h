// Launches of ops/kernels/cuda/image/grid_sample.cu. Each returns 0 or CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_LAUNCH_H_

#include <cstdint>

#include "ops/defs/image/grid_axis.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

inline constexpr int kGridAxes = 3;

// Images [samples, channels, depth, height, width], of less than 2^31 elements each, and points
// [samples, points, axes] with normalized coordinates, those of the last axis first. Axes that
// images lack have one element.
struct GridSampleCall {
  GridAxis options;  // without a size
  int axes = 0;
  int64_t image[kGridAxes] = {1, 1, 1};
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t points = 0;  // of a sample
  RealInput grid;
  bool is_wide = false;  // coordinates and weights are float64, else float32

  WEFT_GPU int64_t plane() const { return image[0] * image[1] * image[2]; }
  // Elements that a point is made of.
  WEFT_GPU int64_t parts() const {
    int64_t parts = 1;
    for (int i = 0; i < axes; ++i) parts *= TapsPerAxis(options.mode);
    return parts;
  }
};

// y [samples, channels, points], of x's type: a number or bool. Nearest copies elements.
int LaunchGridSample(LaunchQueue queue, DType dtype, const GridSampleCall& call, const void* x,
                     void* y);

// The parts of all points, in order: keys[point * parts + part] is sample * plane + the element of
// the image, samples * plane outside; `weights` are float64 where call.is_wide, else float32.
int LaunchGridParts(LaunchQueue queue, const GridSampleCall& call, uint32_t* keys, void* weights);

// dgrid, of dy [samples, channels, points] and x.
int LaunchGridSlopes(LaunchQueue queue, const GridSampleCall& call, const RealInput& dy,
                     const RealInput& x, const RealOutput& dgrid);

// Grids of a theta [samples, axes, axes + 1] for each sample: [samples, image..., axes].
struct AffineGridCall {
  const void* theta = nullptr;
  void* grid = nullptr;
  int axes = 0;                          // 2 or 3
  int64_t image[kGridAxes] = {1, 1, 1};  // depth, height, width
  int64_t samples = 0;
  bool align_corners = false;
};
int LaunchAffineGrid(LaunchQueue queue, DType dtype, const AffineGridCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_LAUNCH_H_
