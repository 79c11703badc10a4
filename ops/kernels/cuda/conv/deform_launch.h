// Launches of ops/kernels/cuda/conv/deform.cu. Each returns 0 or CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

inline constexpr int kDeformAxes = 3;

// Windows along an axis: tap t of window o lies at o * stride - pad + t * dilation.
struct DeformAxis {
  int64_t input = 1;
  int64_t output = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad = 0;
};

// X [samples, groups * channels, image...] is sampled by each tap of each window, moved by offset
// [samples, groups * taps, axes, windows] and multiplied with mask [samples, groups * taps,
// windows]. Axes that images lack come first and have one element.
struct DeformCall {
  DeformAxis axis[kDeformAxes];
  int axes = 0;
  int64_t samples = 0;
  int64_t groups = 1;    // of channels that are moved alike
  int64_t channels = 0;  // of a group
  int64_t taps = 1;
  int64_t windows = 1;
  RealInput x;
  RealInput offset;
  RealInput mask;  // data null: none

  WEFT_GPU int64_t image() const { return axis[0].input * axis[1].input * axis[2].input; }
  WEFT_GPU int64_t fields() const { return groups * taps; }
  WEFT_GPU int64_t columns() const { return groups * channels * taps * windows; }  // of a sample
};

// columns [samples, groups * channels, taps, windows], of X's type.
int LaunchDeformColumns(LaunchQueue queue, const DeformCall& call, void* columns);

// The corners around all points, in order: keys[(field * windows + window) * 2^axes + corner] is
// (sample, group) * image + the corner's element, samples * groups * image outside. Weights have
// the mask in them.
int LaunchDeformCorners(LaunchQueue queue, const DeformCall& call, uint32_t* keys, double* weights);

// doffset and dmask; either may have no data.
int LaunchDeformSlopes(LaunchQueue queue, const DeformCall& call, const RealInput& dcolumns,
                       const RealOutput& doffset, const RealOutput& dmask);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_LAUNCH_H_
