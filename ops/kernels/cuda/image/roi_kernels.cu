// RoiAlign, MaxRoiPool and their gradients.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/image/roi_body.h"
#include "ops/kernels/cuda/image/roi_grad_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kRoiThreads = 128;
constexpr int64_t kRoiBlocks = int64_t{1} << 17;

LaunchGrid RoiGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kRoiThreads, kRoiBlocks), .threads = kRoiThreads};
}

int64_t RoiChunks(const RoiCall& call) { return (call.channels + kRoiChannels - 1) / kRoiChannels; }
int64_t RoiElements(const RoiCall& call) { return call.regions * call.channels * call.pooled(); }

}  // namespace

int LaunchRoiRows(LaunchQueue queue, const RoiCall& call, const RoiRowsCall& rows) {
  return Launch<kRoiThreads>(queue, RoiGrid(call.regions), RoiRowsBody{call, rows});
}

int LaunchRoiAlign(LaunchQueue queue, DType dtype, const RoiCall& call, const void* x, void* y) {
  const int64_t threads = call.regions * call.pooled() * RoiChunks(call);
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    const T* const from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(y);
    if (call.takes_max) {
      return Launch<kRoiThreads>(queue, RoiGrid(threads),
                                 RoiAlignBody<T, true>{from, to, threads, call});
    }
    return Launch<kRoiThreads>(queue, RoiGrid(threads),
                               RoiAlignBody<T, false>{from, to, threads, call});
  });
}

int LaunchMaxRoiPool(LaunchQueue queue, DType dtype, const RoiCall& call, const void* x, void* y) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kRoiThreads>(
        queue, RoiGrid(RoiElements(call)),
        MaxRoiPoolBody<T>{static_cast<const T*>(x), static_cast<T*>(y), call});
  });
}

int LaunchRoiMeanGrad(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                      const RealOutput& dx) {
  const int64_t threads = call.samples * call.plane() * RoiChunks(call);
  return Launch<kRoiThreads>(queue, RoiGrid(threads), RoiMeanGradBody{dy, dx, threads, call});
}

int LaunchRoiPlaces(LaunchQueue queue, const RoiCall& call, const RealInput& x,
                    const RoiPlaces& places) {
  return Launch<kRoiThreads>(queue, RoiGrid(RoiElements(call)), RoiPlacesBody{x, places, call});
}

int LaunchRoiMaxGrad(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                     const RoiPlaces& places, const RealOutput& dx) {
  return Launch<kRoiThreads>(queue, RoiGrid(call.samples * call.channels * call.plane()),
                             RoiMaxGradBody{dy, places, dx, call});
}

int LaunchRoiCorners(LaunchQueue queue, const RoiCall& call, const RealInput& dy,
                     const RealInput& x, const RealOutput& drois) {
  const LaunchGrid grid{.blocks = Blocks(call.regions, 1, kRoiBlocks), .threads = kCornerThreads};
  if (call.takes_max) {
    return Launch<kCornerThreads>(queue, grid, RoiCornersBody<true>{dy, x, drois, call});
  }
  return Launch<kCornerThreads>(queue, grid, RoiCornersBody<false>{dy, x, drois, call});
}

}  // namespace weft::cuda
