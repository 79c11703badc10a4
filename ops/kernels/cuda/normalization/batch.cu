#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/normalization/batch_body.h"
#include "ops/kernels/cuda/normalization/batch_calls.h"

namespace weft::cuda {
namespace {

constexpr int kBatchThreads = 256;

LaunchGrid BatchGrid(int64_t items) {
  return {.blocks = Blocks(items, kBatchThreads), .threads = kBatchThreads};
}

}  // namespace

template <typename T>
int LaunchBatchMoments(LaunchQueue queue, const FoldLaunch& fold, const BatchPlan& plan,
                       const BatchParameters& parameters, const BatchChannels<Compute<T>>& channels,
                       const T* x, void* workspace) {
  return LaunchFold(queue, fold, BatchMomentsSource<T>{plan, parameters, channels, x}, workspace);
}

template <typename C>
int LaunchBatchGiven(LaunchQueue queue, const BatchPlan& plan, const BatchParameters& parameters,
                     const BatchChannels<C>& channels) {
  return Launch<kBatchThreads>(queue, BatchGrid(plan.channels),
                               BatchGivenBody<C>{plan, parameters, channels});
}

int LaunchBatchRunning(LaunchQueue queue, const BatchPlan& plan, const BatchParameters& parameters,
                       const float* mean, const float* inverse) {
  return Launch<kBatchThreads>(queue, BatchGrid(plan.channels),
                               BatchRunningBody{plan, parameters, mean, inverse});
}

template <typename T>
int LaunchBatchGradSums(LaunchQueue queue, const FoldLaunch& fold, const BatchPlan& plan,
                        bool training, const BatchChannels<Compute<T>>& channels, const T* dy,
                        const T* x, const RealOutput& dscale, const RealOutput& dbias,
                        void* workspace) {
  return LaunchFold(queue, fold,
                    BatchGradSource<T>{plan, channels, dy, x, dscale, dbias, training ? 1 : 0},
                    workspace);
}

template <typename T>
int LaunchBatchApply(LaunchQueue queue, const BatchPlan& plan, bool packed,
                     const BatchChannels<Compute<T>>& channels, const T* x, T* y) {
  const int64_t elements = plan.samples * plan.channels * plan.plane;
  if (packed) {
    constexpr int kWidth = kWidest<T>;
    return Launch<kBatchThreads>(queue, BatchGrid(elements / kWidth),
                                 BatchApplyBody<T, kWidth>{plan, channels, x, y});
  }
  return Launch<kBatchThreads>(queue, BatchGrid(elements),
                               BatchApplyBody<T, 1>{plan, channels, x, y});
}

template <typename T>
int LaunchBatchGradApply(LaunchQueue queue, const BatchPlan& plan, bool packed,
                         const BatchChannels<Compute<T>>& channels, const T* dy, const T* x,
                         T* dx) {
  const int64_t elements = plan.samples * plan.channels * plan.plane;
  if (packed) {
    constexpr int kWidth = kWidest<T>;
    return Launch<kBatchThreads>(queue, BatchGrid(elements / kWidth),
                                 BatchGradApplyBody<T, kWidth>{plan, channels, dy, x, dx});
  }
  return Launch<kBatchThreads>(queue, BatchGrid(elements),
                               BatchGradApplyBody<T, 1>{plan, channels, dy, x, dx});
}

#define WEFT_BATCH(T)                                                                       \
  template int LaunchBatchMoments(LaunchQueue, const FoldLaunch&, const BatchPlan&,         \
                                  const BatchParameters&, const BatchChannels<Compute<T>>&, \
                                  const T*, void*);                                         \
  template int LaunchBatchGradSums(LaunchQueue, const FoldLaunch&, const BatchPlan&, bool,  \
                                   const BatchChannels<Compute<T>>&, const T*, const T*,    \
                                   const RealOutput&, const RealOutput&, void*);            \
  template int LaunchBatchApply(LaunchQueue, const BatchPlan&, bool,                        \
                                const BatchChannels<Compute<T>>&, const T*, T*);            \
  template int LaunchBatchGradApply(LaunchQueue, const BatchPlan&, bool,                    \
                                    const BatchChannels<Compute<T>>&, const T*, const T*, T*)
WEFT_BATCH(float);
WEFT_BATCH(double);
WEFT_BATCH(Float16);
WEFT_BATCH(Bfloat16);
#undef WEFT_BATCH
template int LaunchBatchGiven(LaunchQueue, const BatchPlan&, const BatchParameters&,
                              const BatchChannels<float>&);
template int LaunchBatchGiven(LaunchQueue, const BatchPlan&, const BatchParameters&,
                              const BatchChannels<double>&);

}  // namespace weft::cuda
