// Launches of ops/kernels/cuda/image/roi_kernels.cu. Each returns 0 or CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_LAUNCH_H_

#include <cstdint>

#include "ops/defs/image/roi_region.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// One region, as all kernels read it. Axis 0 is y, axis 1 is x.
struct RoiRow {
  AlignedRegion region;  // of RoiAlign
  PooledAxis pooled[2];  // of MaxRoiPool
  int64_t sample;        // -1: a wrong region, which has no elements
  // Pixels along the axes that it may have something of, ends included.
  int64_t low[2];
  int64_t high[2];
};

// X [samples, channels, height, width], of less than 2^31 pixels in a plane, and results [regions,
// channels, pooled height, pooled width].
struct RoiCall {
  RoiSpec spec;
  bool is_align = true;    // RoiAlign; false: MaxRoiPool
  bool takes_max = false;  // RoiAlign's mode
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t size[2] = {0, 0};  // height, width
  int64_t regions = 0;
  RoiRow* rows = nullptr;  // a piece of the workspace, one for each region

  WEFT_GPU int64_t plane() const { return size[0] * size[1]; }
  WEFT_GPU int64_t pooled() const { return spec.pooled[0] * spec.pooled[1]; }
};

// What rows are made of. What is wrong is reported and its region left out.
struct RoiRowsCall {
  RealInput rois;                  // RoiAlign: [regions, 4]; MaxRoiPool: [regions, 5], sample first
  const int64_t* batch = nullptr;  // of RoiAlign: the samples
  FaultReport sample_report;
  FaultReport corner_report;  // pixels from the image's corner
  FaultReport grid_report;    // samples of an element along an axis
};
int LaunchRoiRows(LaunchQueue queue, const RoiCall& call, const RoiRowsCall& rows);

// y, of x's type: float32, float64, float16 or bfloat16.
int LaunchRoiAlign(LaunchQueue queue, DType dtype, const RoiCall& call, const void* x, void* y);
int LaunchMaxRoiPool(LaunchQueue queue, DType dtype, const RoiCall& call, const void* x, void* y);

// dx of RoiAlign's mean.
int LaunchRoiMeanGrad(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                      const RealOutput& dx);

// Where each maximum comes from: the place in the plane, -1 none; and what dy is multiplied with,
// for RoiAlign alone. Both have an element for each of Y.
struct RoiPlaces {
  int32_t* places = nullptr;
  double* factors = nullptr;  // null: 1
};
int LaunchRoiPlaces(LaunchQueue queue, const RoiCall& call, const RealInput& x,
                    const RoiPlaces& places);
// dx of maxima.
int LaunchRoiMaxGrad(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                     const RoiPlaces& places, const RealOutput& dx);

// drois of RoiAlign, [regions, 4].
int LaunchRoiCorners(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                     const RealInput& x, const RealOutput& drois);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_LAUNCH_H_
