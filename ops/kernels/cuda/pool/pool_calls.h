// Launches of pool_body.h and global_body.h. Each returns CUDA's error number.
#ifndef WEFT_OPS_KERNELS_CUDA_POOL_POOL_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_POOL_POOL_CALLS_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Windows along one image axis: WindowAxis (ops/window.h) for a GPU.
struct PoolAxis {
  int32_t input = 1;
  int32_t output = 1;
  int32_t kernel = 1;
  int32_t stride = 1;
  int32_t dilation = 1;
  int32_t pad_begin = 0;
  int32_t pad_end = 0;
};

// Depth, height and width; missing axes come first. A plane is the image of a sample and channel.
struct PoolGeometry {
  int64_t planes = 0;
  PoolAxis axis[3];
};

// Where a plane of this shard lies in the whole tensor, for indices.
struct PoolIndices {
  int64_t* to = nullptr;  // null: no indices are wanted
  int64_t first_sample = 0;
  int64_t first_channel = 0;
  int64_t channels = 1;  // of the shard
  int64_t all_channels = 1;
  bool by_column = false;  // the first image axis runs fastest
};
// Floats, int8 and uint8. NaN wins and stays. An index of -1: the window lies in the padding.
int LaunchMaxPool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* x, void* y,
                  const PoolIndices& indices);
// dx = the sum of dy of the windows whose first element that equals y it is; the last one in the
// image where none does. Floats. `places`: workspace, one for each element of y.
int LaunchMaxPoolGrad(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* x,
                      const void* y, const void* dy, void* dx, int32_t* places);

// Floats. `count_padding`: the divisor counts what lies in the padding.
int LaunchAveragePool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, bool count_padding,
                      const void* x, void* y);
int LaunchAveragePoolGrad(LaunchQueue queue, DType dtype, const PoolGeometry& pool,
                          bool count_padding, const void* dy, void* dx);
// (sum |x|^p)^(1/p). Floats.
int LaunchLpPool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, int64_t p, const void* x,
                 void* y);

// Over whole planes of `size` elements. Floats.
enum class GlobalPool : uint8_t { kAverage, kMax, kLp };
int LaunchGlobalPool(LaunchQueue queue, GlobalPool pool, DType dtype, int64_t planes, int64_t size,
                     int64_t p, const void* x, void* y);
// Each of the `size` elements of a plane is dy of the plane / size.
int LaunchGlobalAverageGrad(LaunchQueue queue, DType dtype, int64_t planes, int64_t size,
                            const void* dy, void* dx);

// The sum of the elements of columns [planes, window, blocks] that a pixel is in. Any number, bool.
int LaunchCol2Im(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* columns,
                 void* image);

// y[place of indices[i]] = x[i], where the place of an element of the image `from` is the same one
// of the larger or smaller image `to`; of several the last one. Others are zero.
inline constexpr int kMaxUnpoolAxes = 8;
struct UnpoolCall {
  const void* x = nullptr;
  const int64_t* indices = nullptr;
  void* y = nullptr;
  int32_t* owners = nullptr;  // workspace: one for each element of y
  int64_t count = 0;          // of x; below 2^31
  int64_t elements = 0;       // of y
  int axes = 0;
  int64_t from[kMaxUnpoolAxes] = {};  // sizes, minor first
  int64_t to[kMaxUnpoolAxes] = {};
  FaultReport report;
};
int LaunchUnpool(LaunchQueue queue, int bytes, const UnpoolCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_POOL_POOL_CALLS_H_
