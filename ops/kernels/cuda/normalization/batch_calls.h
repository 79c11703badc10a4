// Launches BatchNormalization and its gradient. T: a floating type; Compute<T>: what statistics and
// coefficients are in.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// Tensors [samples, channels, plane].
struct BatchPlan {
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  double epsilon = 0;
  double momentum = 0;
  int32_t wide = 0;  // 2^31 elements or more
  FastDivisor<int32_t> by_plane;
  FastDivisor<int32_t> by_channels;

  WEFT_GPU double count() const { return static_cast<double>(samples * plane); }
};

// A channel's numbers in the workspace: [channels] each.
template <typename C>
struct BatchChannels {
  C* mean = nullptr;
  C* inverse = nullptr;  // 1 / sqrt(variance + epsilon)
  C* factor = nullptr;   // scale inverse
  C* first = nullptr;    // the bias; of gradients the mean of dy
  C* second = nullptr;   // of gradients inverse times the mean of dy xhat
};

// What is known of each channel beside x. Data may be null where it is not wanted.
struct BatchParameters {
  RealInput scale;
  RealInput bias;
  RealInput mean;  // given, or running
  RealInput variance;
  RealOutput new_mean;  // running
  RealOutput new_variance;
};

// Elements of a packet of folds, and bytes of their totals.
template <typename T>
inline constexpr int kBatchWidth = sizeof(T) == 8 ? 2 : 4;
inline constexpr size_t kBatchTotalBytes = 16;

// Mean and variance of each channel of x, to `channels` and the running statistics.
template <typename T>
int LaunchBatchMoments(LaunchQueue queue, const FoldLaunch& fold, const BatchPlan& plan,
                       const BatchParameters& parameters, const BatchChannels<Compute<T>>& channels,
                       const T* x, void* workspace);

// The same of statistics that are given.
template <typename C>
int LaunchBatchGiven(LaunchQueue queue, const BatchPlan& plan, const BatchParameters& parameters,
                     const BatchChannels<C>& channels);

// The running statistics alone, from mean and inverse of each channel: [channels] each.
int LaunchBatchRunning(LaunchQueue queue, const BatchPlan& plan, const BatchParameters& parameters,
                       const float* mean, const float* inverse);

// Sums of dy and dy xhat of each channel: dbias and dscale; and, `training`, their means to
// `channels`, else zeros.
template <typename T>
int LaunchBatchGradSums(LaunchQueue queue, const FoldLaunch& fold, const BatchPlan& plan,
                        bool training, const BatchChannels<Compute<T>>& channels, const T* dy,
                        const T* x, const RealOutput& dscale, const RealOutput& dbias,
                        void* workspace);

// y = (x - mean) factor + first. `packed`: 16 bytes of a plane at a time.
template <typename T>
int LaunchBatchApply(LaunchQueue queue, const BatchPlan& plan, bool packed,
                     const BatchChannels<Compute<T>>& channels, const T* x, T* y);

// dx = factor (dy - first - (x - mean) second)
template <typename T>
int LaunchBatchGradApply(LaunchQueue queue, const BatchPlan& plan, bool packed,
                         const BatchChannels<Compute<T>>& channels, const T* dy, const T* x, T* dx);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_CALLS_H_
