#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/pool/global_body.h"

namespace weft::cuda {
namespace {

constexpr int kGlobalThreads = 256;
constexpr int64_t kGlobalBlocks = int64_t{132} * 8 * 8;
// Larger planes have a block each.
constexpr int64_t kWarpPlane = 4096;

template <typename T, class Fold, int kWidth>
int PoolPlanes(LaunchQueue queue, int64_t planes, int64_t size, const Fold& fold, const T* x,
               T* y) {
  if (size > kWarpPlane) {
    return Launch<kGlobalThreads>(
        queue, {.blocks = std::min(planes, kGlobalBlocks), .threads = kGlobalThreads},
        GlobalPoolBody<T, Fold, kWidth, true>{x, y, planes, size, fold});
  }
  const int64_t blocks = Blocks(planes * kWarp, kGlobalThreads, kGlobalBlocks);
  return Launch<kGlobalThreads>(queue, {.blocks = blocks, .threads = kGlobalThreads},
                                GlobalPoolBody<T, Fold, kWidth, false>{x, y, planes, size, fold});
}

template <class Fold>
int PoolByType(LaunchQueue queue, DType dtype, int64_t planes, int64_t size, const Fold& fold,
               const void* x, void* y) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    const T* const from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(y);
    const bool has_packets =
        size % kWidest<T> == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 && size >= 64;
    return has_packets ? PoolPlanes<T, Fold, kWidest<T>>(queue, planes, size, fold, from, to)
                       : PoolPlanes<T, Fold, 1>(queue, planes, size, fold, from, to);
  });
}

template <typename T, typename Index>
int AverageGrad(LaunchQueue queue, int64_t planes, int64_t size, const void* dy, void* dx) {
  using Body = GlobalAverageGradBody<T, Index>;
  const int64_t count = planes * size;
  const int64_t packets = reinterpret_cast<uintptr_t>(dx) % 16 == 0 ? count / Body::kWidth : 0;
  const int64_t threads = std::max(packets, count - packets * Body::kWidth);
  return Launch<kGlobalThreads>(
      queue, {.blocks = Blocks(threads, kGlobalThreads, kGlobalBlocks), .threads = kGlobalThreads},
      Body{static_cast<const T*>(dy), static_cast<T*>(dx), static_cast<Index>(count),
           static_cast<Index>(packets), FastDivisor<Index>(static_cast<Index>(size))});
}

}  // namespace

int LaunchGlobalPool(LaunchQueue queue, GlobalPool pool, DType dtype, int64_t planes, int64_t size,
                     int64_t p, const void* x, void* y) {
  switch (pool) {
    case GlobalPool::kAverage:
      return PoolByType(queue, dtype, planes, size, AverageFold(), x, y);
    case GlobalPool::kMax:
      return PoolByType(queue, dtype, planes, size, MaxPlaneFold(), x, y);
    case GlobalPool::kLp:
      return PoolByType(queue, dtype, planes, size, LpFold{LpNorm{p}}, x, y);
  }
  return kNoSuchBody;
}

int LaunchGlobalAverageGrad(LaunchQueue queue, DType dtype, int64_t planes, int64_t size,
                            const void* dy, void* dx) {
  if (planes * size == 0) return 0;
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return planes * size < (int64_t{1} << 31)
               ? AverageGrad<T, int32_t>(queue, planes, size, dy, dx)
               : AverageGrad<T, int64_t>(queue, planes, size, dy, dx);
  });
}

}  // namespace weft::cuda
