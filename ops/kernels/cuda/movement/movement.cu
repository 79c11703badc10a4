#include <algorithm>
#include <cstring>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/movement/movement_body.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMovementBlocks = int64_t{132} * 8 * 8;
constexpr int64_t kSmallCount = int64_t{1} << 31;

LaunchGrid MovementGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kThreads, kMovementBlocks), .threads = kThreads};
}

// launch(Index{}) with indices of 32 bits where `count` elements have them.
template <typename Fn>
int ByCount(int64_t count, Fn launch) {
  if (count == 0) return 0;
  return count < kSmallCount ? launch(int32_t{}) : launch(int64_t{});
}

template <typename Index>
FastDivisor<Index> DivisorOf(int64_t size) {
  return FastDivisor<Index>(static_cast<Index>(std::max<int64_t>(size, 1)));
}

}  // namespace

int LaunchInts(LaunchQueue queue, const IntsCall& call) {
  if (call.count == 0) return 0;
  return Launch<kWarp>(queue, {.threads = kWarp}, IntsBody{call});
}

int LaunchRange(LaunchQueue queue, DType dtype, const void* start, const void* delta, void* y,
                int64_t count) {
  return LaunchByType(dtype, NumberLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kThreads>(queue, MovementGrid(count),
                            RangeBody<T>{static_cast<const T*>(start), static_cast<const T*>(delta),
                                         static_cast<T*>(y), count});
  });
}

int LaunchTrilu(LaunchQueue queue, int bytes, const TriluCall& call) {
  return LaunchByWidth(bytes, [&](auto element) {
    return ByCount(call.count, [&](auto index) {
      using T = decltype(element);
      using Index = decltype(index);
      return Launch<kThreads>(
          queue, MovementGrid(call.count),
          TriluBody<T, Index>{static_cast<const T*>(call.x), static_cast<T*>(call.y), call.k,
                              static_cast<Index>(call.count), DivisorOf<Index>(call.rows),
                              DivisorOf<Index>(call.columns), call.upper});
    });
  });
}

int LaunchEye(LaunchQueue queue, DType dtype, void* y, int64_t rows, int64_t columns, int64_t k) {
  uint64_t one = 0;  // its low bytes: those of an element
  int bytes = 0;
  const int code = LaunchByType(dtype, RealLaunches(), [&](auto zero) {
    using T = decltype(zero);
    const T value = Narrow<T>(static_cast<Compute<T>>(1));
    bytes = sizeof(value);
    memcpy(&one, &value, sizeof(value));
    return 0;
  });
  if (code != 0) return code;
  return LaunchByWidth(bytes, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) > 8) {
      return kNoSuchBody;
    } else {
      return ByCount(rows * columns, [&](auto index) {
        using Index = decltype(index);
        return Launch<kThreads>(
            queue, MovementGrid(rows * columns),
            EyeBody<T, Index>{static_cast<T*>(y), static_cast<T>(one),
                              static_cast<Index>(rows * columns), DivisorOf<Index>(columns), k});
      });
    }
  });
}

int LaunchOneHot(LaunchQueue queue, int bytes, const OneHotCall& call) {
  return LaunchByWidth(bytes, [&](auto element) {
    return ByCount(call.count, [&](auto index) {
      using T = decltype(element);
      using Index = decltype(index);
      return Launch<kThreads>(
          queue, MovementGrid(call.count),
          OneHotBody<T, Index>{call.indices, call.index_dtype, static_cast<const T*>(call.values),
                               static_cast<T*>(call.y), static_cast<Index>(call.count),
                               DivisorOf<Index>(call.depth), DivisorOf<Index>(call.inner)});
    });
  });
}

int LaunchPad(LaunchQueue queue, int bytes, const PadCall& call) {
  int64_t largest = call.count;
  for (int d = 0; d < call.axes; ++d) {
    largest = std::max(largest, 2 * (call.axis[d].first + call.axis[d].kept));
  }
  if (call.count == 0) return 0;
  return LaunchByWidth(bytes, [&](auto element) {
    return ByCount(largest, [&](auto index) {
      using T = decltype(element);
      using Index = decltype(index);
      PadBody<T, Index> body{static_cast<const T*>(call.x),
                             static_cast<const T*>(call.fill),
                             static_cast<T*>(call.y),
                             static_cast<Index>(call.count),
                             call.axes,
                             {},
                             call.beyond};
      for (int d = 0; d < call.axes; ++d) {
        const PadAxis& axis = call.axis[d];
        body.lines[d] = {DivisorOf<Index>(axis.size), static_cast<Index>(axis.before),
                         static_cast<Index>(axis.first), static_cast<Index>(axis.kept),
                         axis.stride};
      }
      return Launch<kThreads>(queue, MovementGrid(call.count), body);
    });
  });
}

int LaunchReverse(LaunchQueue queue, int bytes, const ReverseCall& call) {
  return LaunchByWidth(bytes, [&](auto element) {
    return ByCount(call.count, [&](auto index) {
      using T = decltype(element);
      using Index = decltype(index);
      return Launch<kThreads>(
          queue, MovementGrid(call.count),
          ReverseBody<T, Index>{static_cast<const T*>(call.x), call.lengths,
                                static_cast<T*>(call.y), static_cast<Index>(call.count),
                                DivisorOf<Index>(call.first), DivisorOf<Index>(call.middle),
                                DivisorOf<Index>(call.second), DivisorOf<Index>(call.inner),
                                call.batch_is_first, call.report});
    });
  });
}

int LaunchRunningTerm(LaunchQueue queue, DType dtype, const void* x, void* y, void* total,
                      int64_t count, double weight) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    using Body = RunningTermBody<T>;
    const bool is_aligned =
        (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
    const int64_t packets = is_aligned ? count / Body::kWidth : 0;
    const int64_t threads = std::max<int64_t>({packets, count - packets * Body::kWidth, 1});
    return Launch<kThreads>(
        queue, MovementGrid(threads),
        Body{static_cast<const T*>(x), static_cast<T*>(y), static_cast<T*>(total), count, packets,
             static_cast<Compute<T>>(weight)});
  });
}

}  // namespace weft::cuda
