// Launches the gradients of layer and RMS normalization in one walk over the rows.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"

namespace weft::cuda {

inline constexpr int kWalkThreads = 256;  // of a block, and at most of a row
inline constexpr int kWalkSumsWidth = 4;  // elements of a packet of LaunchWalkSums

// Packets of a row for each thread: at most 8 elements, so that those of two rows and the sums of
// their columns are in registers of three blocks.
constexpr int WalkPackets(int width) { return width > 4 ? 1 : 2; }

// How rows are shared. It depends on shapes alone, and so do the bits of the sums. Value type.
struct NormalizeWalk {
  int32_t rows = 0;     // below 2^30
  int32_t walkers = 0;  // 0: rows are too long or too many, or there is nothing to do
  int32_t turns = 0;    // rows of the first walker
  int32_t columns = 0;
  int32_t log_threads = 0;  // of a walker
  int32_t width = 1;        // elements of a packet; addresses are multiples of it

  // `widest`: elements in 16 bytes. Rows of at most 256 WalkPackets of them.
  static NormalizeWalk Of(int64_t rows, int64_t columns, int widest) {
    // Three blocks on each of the 108 multiprocessors of an A100 run at once; an H100 has 132. A
    // walker has 8 rows and more: its sums are two numbers for each column.
    constexpr int64_t kBlocks = 324;
    constexpr int64_t kMinRows = 8;
    NormalizeWalk walk;
    const int width = columns % widest == 0 ? widest : 1;
    const int64_t packets = columns / width;
    if (rows == 0 || rows >= int64_t{1} << 30 || columns == 0 ||
        packets > kWalkThreads * WalkPackets(width))
      return walk;
    walk.rows = static_cast<int32_t>(rows);
    walk.columns = static_cast<int32_t>(columns);
    walk.width = width;
    while (int64_t{WalkPackets(width)} << walk.log_threads < packets) ++walk.log_threads;
    const int64_t limit = kBlocks * (kWalkThreads >> walk.log_threads);
    walk.walkers = static_cast<int32_t>(std::clamp<int64_t>(rows / kMinRows, 1, limit));
    walk.turns = static_cast<int32_t>((rows + walk.walkers - 1) / walk.walkers);
    return walk;
  }
  // Of each of the two arrays of sums.
  size_t sums() const { return static_cast<size_t>(walkers) * static_cast<size_t>(columns); }
};

// dx, and scales[walker, column] = the sum of dy n over the walker's rows; biases: that of dy, null
// of RMS. new_inverse is not written. T is not double. 0, or CUDA's error number.
template <typename T>
int LaunchNormalizeWalk(LaunchQueue queue, const NormalizeWalk& walk, bool rms,
                        const NormalizeGradOperands<T>& operands, Compute<T>* scales,
                        Compute<T>* biases);

// dscale and dbias, either of which may be null, from these sums. `fold`: of columns.
template <typename T>
int LaunchWalkSums(LaunchQueue queue, const FoldLaunch& fold, const Compute<T>* scales,
                   const Compute<T>* biases, T* dscale, T* dbias, void* workspace);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_LAUNCH_H_
