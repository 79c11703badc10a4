// Launches the losses of labels, their gradients, and what training counts. T: a floating type.
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/blocks/line_layout.h"
#include "ops/kernels/cuda/blocks/real_operand.h"

namespace weft::cuda {

// The label of each sample, and the weight of each class.
struct LossLabels {
  IndexInput labels;
  RealInput weights;   // data null: ones
  FaultReport report;  // of a label that is no class
  int64_t ignored = 0;
  int32_t has_ignored = 0;
  int32_t any = 0;  // labels are not looked at: each one that is not ignored weighs 1
};

// Scores are [batch, classes, inner]; sample n * inner + i has the scores n * classes * inner + i,
// and so on, `inner` apart.
struct LossScores {
  int64_t samples = 0;
  int64_t classes = 0;
  int64_t inner = 1;
};

// Bytes of the largest Total.
inline constexpr size_t kLossTotalBytes = 16;
// Elements of a packet of folds.
template <typename T>
inline constexpr int kLossWidth = sizeof(T) == 8 ? 2 : 4;

// The weighted loss and the weight of each sample, [samples] each; `softmax`: of the scores'
// logarithms of softmax, else of the scores. 0, or CUDA's error number.
template <typename T>
int LaunchSampleLosses(LaunchQueue queue, bool softmax, const FoldLaunch& fold,
                       const LossScores& scores, const LossLabels& labels, const T* x,
                       double* losses, double* weights, void* workspace);

// The sum of losses; `mean`: divided by the sum of weights.
int LaunchLossTotal(LaunchQueue queue, const FoldLaunch& fold, bool mean, const double* losses,
                    const double* weights, const RealOutput& y, void* workspace);

// y[s] = losses[s]
int LaunchLossCopy(LaunchQueue queue, int64_t samples, const double* losses, const RealOutput& y);

// The sum of the labels' weights.
int LaunchLossWeight(LaunchQueue queue, const FoldLaunch& fold, const LossLabels& labels,
                     const RealOutput& y, void* workspace);

// What the gradients have beside scores and labels.
struct LossSlope {
  RealInput dy;
  int32_t per_sample = 0;                // of dy
  const double* total_weight = nullptr;  // what a mean divides by
};

// dx = scale (softmax(x) - one at the label), scale = dy weight / total weight. float64 is not kept
// in registers.
template <typename T>
int LaunchCrossEntropyGrad(LaunchQueue queue, const LineLaunch& line, const LossLabels& labels,
                           const LossSlope& slope, const T* x, T* dx);

// -scale at the label, zeros elsewhere.
template <typename T>
int LaunchNegativeLogGrad(LaunchQueue queue, const LossScores& scores, const LossLabels& labels,
                          const LossSlope& slope, T* dx);

// hits[s] = 1 where the first of the largest scores is that of the label, else 0.
template <typename T>
int LaunchCorrect(LaunchQueue queue, const FoldLaunch& fold, const IndexInput& labels, const T* x,
                  double* hits, void* workspace);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_CALLS_H_
