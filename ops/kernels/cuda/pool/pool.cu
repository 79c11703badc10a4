#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/blocks/strided_copy_launch.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/pool/pool_body.h"

namespace weft::cuda {
namespace {

constexpr int kPoolThreads = 256;
constexpr int64_t kPoolBlocks = int64_t{132} * 8 * 8;

LaunchGrid PoolGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kPoolThreads, kPoolBlocks), .threads = kPoolThreads};
}

template <typename Index>
PoolDivisors<Index> DivisorsOf(int32_t d, int32_t h, int32_t w) {
  return {FastDivisor<Index>(std::max(d, 1)), FastDivisor<Index>(std::max(h, 1)),
          FastDivisor<Index>(std::max(w, 1))};
}
template <typename Index>
PoolDivisors<Index> OutputDivisors(const PoolGeometry& pool) {
  return DivisorsOf<Index>(pool.axis[0].output, pool.axis[1].output, pool.axis[2].output);
}
template <typename Index>
PoolDivisors<Index> InputDivisors(const PoolGeometry& pool) {
  return DivisorsOf<Index>(pool.axis[0].input, pool.axis[1].input, pool.axis[2].input);
}

int64_t OutputCount(const PoolGeometry& pool) { return pool.planes * PlaneOutput(pool); }
int64_t InputCount(const PoolGeometry& pool) { return pool.planes * PlaneInput(pool); }

// launch(T{}, Index{}) by the type and the number of elements, `more` of another tensor.
template <typename Types, typename Fn>
int LaunchPool(DType dtype, Types types, int64_t count, Fn launch, int64_t more = 0) {
  if (count == 0) return 0;
  return LaunchByType(dtype, types, [&](auto zero) {
    return std::max(count, more) < (int64_t{1} << 31) ? launch(zero, int32_t{})
                                                      : launch(zero, int64_t{});
  });
}

using MaxPoolTypes = LaunchTypes<float, double, Float16, Bfloat16, int8_t, uint8_t>;

}  // namespace

int LaunchMaxPool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* x, void* y,
                  const PoolIndices& indices) {
  const int64_t count = OutputCount(pool);
  return LaunchPool(dtype, MaxPoolTypes(), count, [&](auto zero, auto index) {
    using T = decltype(zero);
    using Index = decltype(index);
    return Launch<kPoolThreads>(queue, PoolGrid(count),
                                MaxPoolBody<T, Index>{static_cast<const T*>(x), static_cast<T*>(y),
                                                      static_cast<Index>(count), pool,
                                                      OutputDivisors<Index>(pool), indices});
  });
}

int LaunchMaxPoolGrad(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* x,
                      const void* y, const void* dy, void* dx, int32_t* places) {
  const int64_t windows = OutputCount(pool);
  const int64_t count = InputCount(pool);
  return LaunchPool(
      dtype, FloatLaunches(), count,
      [&](auto zero, auto index) {
        using T = decltype(zero);
        using Index = decltype(index);
        const int code = Launch<kPoolThreads>(
            queue, PoolGrid(windows),
            MaxPlaceBody<T, Index>{static_cast<const T*>(x), static_cast<const T*>(y), places,
                                   static_cast<Index>(windows), pool, OutputDivisors<Index>(pool)});
        if (code != 0) return code;
        return Launch<kPoolThreads>(
            queue, PoolGrid(count),
            MaxPoolGradBody<T, Index>{places, static_cast<const T*>(dy), static_cast<T*>(dx),
                                      static_cast<Index>(count), pool, InputDivisors<Index>(pool)});
      },
      windows);
}

int LaunchAveragePool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, bool count_padding,
                      const void* x, void* y) {
  const int64_t count = OutputCount(pool);
  return LaunchPool(dtype, FloatLaunches(), count, [&](auto zero, auto index) {
    using T = decltype(zero);
    using Index = decltype(index);
    return Launch<kPoolThreads>(
        queue, PoolGrid(count),
        AveragePoolBody<T, Index>{static_cast<const T*>(x), static_cast<T*>(y),
                                  static_cast<Index>(count), pool, OutputDivisors<Index>(pool),
                                  count_padding});
  });
}

int LaunchAveragePoolGrad(LaunchQueue queue, DType dtype, const PoolGeometry& pool,
                          bool count_padding, const void* dy, void* dx) {
  const int64_t count = InputCount(pool);
  return LaunchPool(dtype, FloatLaunches(), count, [&](auto zero, auto index) {
    using T = decltype(zero);
    using Index = decltype(index);
    return Launch<kPoolThreads>(
        queue, PoolGrid(count),
        AveragePoolGradBody<T, Index>{static_cast<const T*>(dy), static_cast<T*>(dx),
                                      static_cast<Index>(count), pool, InputDivisors<Index>(pool),
                                      count_padding});
  });
}

int LaunchLpPool(LaunchQueue queue, DType dtype, const PoolGeometry& pool, int64_t p, const void* x,
                 void* y) {
  const int64_t count = OutputCount(pool);
  return LaunchPool(dtype, FloatLaunches(), count, [&](auto zero, auto index) {
    using T = decltype(zero);
    using Index = decltype(index);
    return Launch<kPoolThreads>(queue, PoolGrid(count),
                                LpPoolBody<T, Index>{static_cast<const T*>(x), static_cast<T*>(y),
                                                     static_cast<Index>(count), pool,
                                                     OutputDivisors<Index>(pool), LpNorm{p}});
  });
}

int LaunchCol2Im(LaunchQueue queue, DType dtype, const PoolGeometry& pool, const void* columns,
                 void* image) {
  const int64_t count = InputCount(pool);
  return LaunchPool(dtype, RealLaunches(), count, [&](auto zero, auto index) {
    using T = decltype(zero);
    using Index = decltype(index);
    return Launch<kPoolThreads>(
        queue, PoolGrid(count),
        Col2ImBody<T, Index>{static_cast<const T*>(columns), static_cast<T*>(image),
                             static_cast<Index>(count), pool, InputDivisors<Index>(pool)});
  });
}

int LaunchUnpool(LaunchQueue queue, int bytes, const UnpoolCall& call) {
  if (call.elements > 0) {
    constexpr uint32_t kNobody[4] = {~0U, ~0U, ~0U, ~0U};  // -1
    const int code = LaunchFill(queue, kNobody, call.owners, call.elements * 4);
    if (code != 0) return code;
  }
  const int code = Launch<kPoolThreads>(queue, PoolGrid(call.count), UnpoolClaimBody{call});
  if (code != 0) return code;
  return LaunchByWidth(bytes, [&](auto zero) {
    using T = decltype(zero);
    return Launch<kPoolThreads>(queue, PoolGrid(call.elements),
                                UnpoolTakeBody<T>{static_cast<const T*>(call.x), call.owners,
                                                  static_cast<T*>(call.y), call.elements});
  });
}

}  // namespace weft::cuda
