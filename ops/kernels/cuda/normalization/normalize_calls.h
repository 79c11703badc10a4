// Launches the normalizations of rows: LayerNormalization, RMSNormalization, those of groups and
// instances, and the gradients of the first two. T: a floating type; C: what it is computed in.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/axis_index.h"
#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/blocks/line_layout.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// y = scale (x - mean) / sqrt(variance + epsilon) + bias of each row of x.
template <typename T>
struct NormalizeOperands {
  const T* x = nullptr;
  const T* scale = nullptr;
  const T* bias = nullptr;  // may be null
  T* y = nullptr;
  RealOutput mean;     // of each row; may be null
  RealOutput inverse;  // 1 / deviation
  double epsilon = 0;
  // 0: scale and bias have an element for each of a row. Else a row is a group of `channels` planes
  // of so many elements, and they have one for each channel, or one for each group.
  int32_t plane = 0;
  int32_t per_group = 0;
  int64_t groups = 1;
  int64_t channels = 1;
  FastDivisor<int32_t> by_plane;
};

// `rms`: without the mean. float64 is not kept in registers. 0, or CUDA's error number.
template <typename T>
int LaunchNormalize(LaunchQueue queue, const LineLaunch& line, bool rms,
                    const NormalizeOperands<T>& operands);

// RMSNormalization with operands of several types, or a scale that is broadcast to the row.
template <typename T>
struct MixedRmsOperands {
  const T* x = nullptr;
  RealInput scale;
  AxisIndex of_scale;  // where the scale of element i of a row lies
  RealOutput y;
  double epsilon = 0;
};
// REQUIRES: line.width == 1 and !line.in_registers.
template <typename T>
int LaunchMixedRms(LaunchQueue queue, const LineLaunch& line, const MixedRmsOperands<T>& operands);

// Of layers the statistics are given; of RMS the inverse is computed again.
template <typename T>
struct NormalizeGradOperands {
  const T* dy = nullptr;
  const T* x = nullptr;
  const T* scale = nullptr;
  const Compute<T>* mean = nullptr;
  const Compute<T>* inverse = nullptr;
  T* dx = nullptr;                    // may be null
  Compute<T>* new_inverse = nullptr;  // of RMS: for LaunchNormalizeColumns; may be null
  double epsilon = 0;
};
template <typename T>
int LaunchNormalizeGrad(LaunchQueue queue, const LineLaunch& line, bool rms,
                        const NormalizeGradOperands<T>& operands);

// Elements of a packet of LaunchNormalizeColumns.
template <typename T>
inline constexpr int kColumnsWidth = sizeof(T) == 8 ? 2 : 4;
inline constexpr size_t kColumnsTotalBytes = 16;

// dscale = the sum of dy (x - mean) inverse over rows, dbias = the sum of dy. Mean, dscale and
// dbias may be null.
template <typename T>
struct NormalizeColumnsOperands {
  const T* dy = nullptr;
  const T* x = nullptr;
  const Compute<T>* mean = nullptr;
  const Compute<T>* inverse = nullptr;
  T* dscale = nullptr;
  T* dbias = nullptr;
};
template <typename T>
int LaunchNormalizeColumns(LaunchQueue queue, const FoldLaunch& fold,
                           const NormalizeColumnsOperands<T>& operands, void* workspace);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_CALLS_H_
