#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/normalization/normalize_walk_body.h"
#include "ops/kernels/cuda/normalization/normalize_walk_launch.h"

namespace weft::cuda {
namespace {

template <int V, bool kRms, typename T>
int LaunchWalkOf(LaunchQueue queue, const NormalizeWalk& walk,
                 const NormalizeGradOperands<T>& operands, Compute<T>* scales, Compute<T>* biases) {
  const int64_t of_block = kWalkThreads >> walk.log_threads;
  const LaunchGrid grid{.blocks = (walk.walkers + of_block - 1) / of_block,
                        .threads = kWalkThreads};
  return Launch<kWalkThreads>(queue, grid,
                              NormalizeWalkBody<V, T, kRms>{walk, operands, scales, biases});
}

template <bool kRms, typename T>
int LaunchWalkByWidth(LaunchQueue queue, const NormalizeWalk& walk,
                      const NormalizeGradOperands<T>& operands, Compute<T>* scales,
                      Compute<T>* biases) {
  return walk.width == 1 ? LaunchWalkOf<1, kRms>(queue, walk, operands, scales, biases)
                         : LaunchWalkOf<kWidest<T>, kRms>(queue, walk, operands, scales, biases);
}

}  // namespace

template <typename T>
int LaunchNormalizeWalk(LaunchQueue queue, const NormalizeWalk& walk, bool rms,
                        const NormalizeGradOperands<T>& operands, Compute<T>* scales,
                        Compute<T>* biases) {
  return rms ? LaunchWalkByWidth<true>(queue, walk, operands, scales, biases)
             : LaunchWalkByWidth<false>(queue, walk, operands, scales, biases);
}

template <typename T>
int LaunchWalkSums(LaunchQueue queue, const FoldLaunch& fold, const Compute<T>* scales,
                   const Compute<T>* biases, T* dscale, T* dbias, void* workspace) {
  if (biases == nullptr) {
    return LaunchFold(queue, fold, WalkSumsSource<T, true>{scales, nullptr, dscale, nullptr},
                      workspace);
  }
  return LaunchFold(queue, fold, WalkSumsSource<T, false>{scales, biases, dscale, dbias},
                    workspace);
}

#define WEFT_NORMALIZE_WALK(T)                                                                 \
  template int LaunchNormalizeWalk(LaunchQueue, const NormalizeWalk&, bool,                    \
                                   const NormalizeGradOperands<T>&, Compute<T>*, Compute<T>*); \
  template int LaunchWalkSums(LaunchQueue, const FoldLaunch&, const Compute<T>*,               \
                              const Compute<T>*, T*, T*, void*)
WEFT_NORMALIZE_WALK(float);
WEFT_NORMALIZE_WALK(Float16);
WEFT_NORMALIZE_WALK(Bfloat16);
#undef WEFT_NORMALIZE_WALK

}  // namespace weft::cuda
