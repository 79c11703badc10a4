// Launches folds (ops/kernels/cuda/blocks/fold_body.h). For .cu files.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAUNCH_H_

#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {

// Runs the fold; `workspace` has room for FoldPlan::workspace_bytes(sizeof(Source::Total)). 0, or
// CUDA's error number.
template <class Source>
int LaunchFold(LaunchQueue queue, const FoldLaunch& fold, const Source& source, void* workspace) {
  using Total = typename Source::Total;
  Total* const partials = fold.chunks > 1 ? static_cast<Total*>(workspace) : nullptr;
  int code = 0;
  if (fold.width == 1) {
    code =
        Launch<kFoldThreads>(queue, fold.grid, FoldBody<1, Source>{fold.layout, source, partials});
  } else if constexpr (Source::kWidth > 1) {
    code = Launch<kFoldThreads>(queue, fold.grid,
                                FoldBody<Source::kWidth, Source>{fold.layout, source, partials});
  }
  if (code != 0 || partials == nullptr) return code;
  return Launch<kFoldThreads>(
      queue, fold.second,
      FoldPartialsBody<Source>{source, partials, fold.chunks, fold.outputs, fold.second_log_lanes});
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAUNCH_H_
