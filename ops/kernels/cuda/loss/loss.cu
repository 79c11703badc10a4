#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/loss/loss_body.h"
#include "ops/kernels/cuda/loss/loss_calls.h"
#include "ops/kernels/cuda/loss/loss_grad_body.h"

namespace weft::cuda {
namespace {

constexpr int kLossThreads = 256;

LaunchGrid LossGrid(int64_t items) {
  return {.blocks = Blocks(items, kLossThreads), .threads = kLossThreads};
}

}  // namespace

template <typename T>
int LaunchSampleLosses(LaunchQueue queue, bool softmax, const FoldLaunch& fold,
                       const LossScores& scores, const LossLabels& labels, const T* x,
                       double* losses, double* weights, void* workspace) {
  const SampleLosses<T> samples{scores, labels, x, losses, weights};
  if (softmax) return LaunchFold(queue, fold, CrossEntropySource<T>{samples}, workspace);
  return Launch<kLossThreads>(queue, LossGrid(scores.samples), NegativeLogBody<T>{samples});
}

int LaunchLossTotal(LaunchQueue queue, const FoldLaunch& fold, bool mean, const double* losses,
                    const double* weights, const RealOutput& y, void* workspace) {
  return LaunchFold(queue, fold, LossTotalSource{losses, weights, y, mean ? 1 : 0}, workspace);
}

int LaunchLossCopy(LaunchQueue queue, int64_t samples, const double* losses, const RealOutput& y) {
  return Launch<kLossThreads>(queue, LossGrid(samples), LossCopyBody{samples, losses, y});
}

int LaunchLossWeight(LaunchQueue queue, const FoldLaunch& fold, const LossLabels& labels,
                     const RealOutput& y, void* workspace) {
  return LaunchFold(queue, fold, LossWeightSource{labels, y}, workspace);
}

template <typename T>
int LaunchCrossEntropyGrad(LaunchQueue queue, const LineLaunch& line, const LossLabels& labels,
                           const LossSlope& slope, const T* x, T* dx) {
  if constexpr (!std::is_same_v<T, double>) {
    if (line.in_registers) {
      return LaunchRows(queue, line, CrossEntropyGradSource<T, true>{labels, slope, x, dx});
    }
  }
  return LaunchLines(queue, line, CrossEntropyGradSource<T, false>{labels, slope, x, dx});
}

template <typename T>
int LaunchNegativeLogGrad(LaunchQueue queue, const LossScores& scores, const LossLabels& labels,
                          const LossSlope& slope, T* dx) {
  return Launch<kLossThreads>(queue, LossGrid(scores.samples * scores.classes),
                              NegativeLogGradBody<T>{scores, labels, slope, dx});
}

template <typename T>
int LaunchCorrect(LaunchQueue queue, const FoldLaunch& fold, const IndexInput& labels, const T* x,
                  double* hits, void* workspace) {
  return LaunchFold(queue, fold, CorrectSource<T>{labels, x, hits}, workspace);
}

#define WEFT_LOSS(T)                                                                               \
  template int LaunchSampleLosses(LaunchQueue, bool, const FoldLaunch&, const LossScores&,         \
                                  const LossLabels&, const T*, double*, double*, void*);           \
  template int LaunchCrossEntropyGrad(LaunchQueue, const LineLaunch&, const LossLabels&,           \
                                      const LossSlope&, const T*, T*);                             \
  template int LaunchNegativeLogGrad(LaunchQueue, const LossScores&, const LossLabels&,            \
                                     const LossSlope&, T*);                                        \
  template int LaunchCorrect(LaunchQueue, const FoldLaunch&, const IndexInput&, const T*, double*, \
                             void*)
WEFT_LOSS(float);
WEFT_LOSS(double);
WEFT_LOSS(Float16);
WEFT_LOSS(Bfloat16);
#undef WEFT_LOSS

}  // namespace weft::cuda
