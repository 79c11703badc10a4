// GridSample, its gradient and AffineGrid.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/image/grid_sample_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kGridThreads = 128;
constexpr int64_t kGridBlocks = int64_t{1} << 17;

LaunchGrid GridOf(int64_t threads) {
  return {.blocks = Blocks(threads, kGridThreads, kGridBlocks), .threads = kGridThreads};
}

int64_t ThreadsOf(const GridSampleCall& call) {
  return call.samples * call.points * ((call.channels + kGridChannels - 1) / kGridChannels);
}

template <typename T, SampleMode kMode>
int LaunchFloats(LaunchQueue queue, const GridSampleCall& call, const void* x, void* y) {
  const int64_t threads = ThreadsOf(call);
  return Launch<kGridThreads>(
      queue, GridOf(threads),
      GridSampleBody<T, kMode>{static_cast<const T*>(x), static_cast<T*>(y), threads, call});
}

template <SampleMode kMode>
int LaunchWeighted(LaunchQueue queue, DType dtype, const GridSampleCall& call, const void* x,
                   void* y) {
  const int64_t threads = ThreadsOf(call);
  if (dtype == DType::kFloat64) return LaunchFloats<double, kMode>(queue, call, x, y);
  if (call.is_wide) {
    return Launch<kGridThreads>(queue, GridOf(threads),
                                AnyGridSampleBody<double, kMode>{x, {y, dtype}, threads, call});
  }
  if (dtype == DType::kFloat32) return LaunchFloats<float, kMode>(queue, call, x, y);
  if (dtype == DType::kFloat16) return LaunchFloats<Float16, kMode>(queue, call, x, y);
  if (dtype == DType::kBfloat16) return LaunchFloats<Bfloat16, kMode>(queue, call, x, y);
  return Launch<kGridThreads>(queue, GridOf(threads),
                              AnyGridSampleBody<float, kMode>{x, {y, dtype}, threads, call});
}

// launch(G{}): the type of coordinates and weights.
template <typename Fn>
int LaunchByWeights(const GridSampleCall& call, Fn launch) {
  return call.is_wide ? launch(double{}) : launch(float{});
}

template <SampleMode kMode>
int LaunchParts(LaunchQueue queue, const GridSampleCall& call, uint32_t* keys, void* weights) {
  return LaunchByWeights(call, [&](auto zero) {
    using G = decltype(zero);
    return Launch<kGridThreads>(queue, GridOf(call.samples * call.points),
                                GridPartsBody<G, kMode>{keys, static_cast<G*>(weights), call});
  });
}

template <SampleMode kMode>
int LaunchSlopes(LaunchQueue queue, const GridSampleCall& call, const RealInput& dy,
                 const RealInput& x, const RealOutput& dgrid) {
  return LaunchByWeights(call, [&](auto zero) {
    using G = decltype(zero);
    return Launch<kGridThreads>(queue, GridOf(call.samples * call.points),
                                GridSlopesBody<G, kMode>{dy, x, dgrid, call});
  });
}

}  // namespace

int LaunchGridSample(LaunchQueue queue, DType dtype, const GridSampleCall& call, const void* x,
                     void* y) {
  switch (call.options.mode) {
    case SampleMode::kLinear:
      return LaunchWeighted<SampleMode::kLinear>(queue, dtype, call, x, y);
    case SampleMode::kCubic:
      return LaunchWeighted<SampleMode::kCubic>(queue, dtype, call, x, y);
    case SampleMode::kNearest:
      break;
  }
  const int64_t threads = ThreadsOf(call);
  return LaunchByWidth(static_cast<int>(DTypeBytes(dtype, 1)), [&](auto unit) {
    using Unit = decltype(unit);
    return LaunchByWeights(call, [&](auto zero) {
      using G = decltype(zero);
      return Launch<kGridThreads>(queue, GridOf(threads),
                                  NearestGridBody<Unit, G>{static_cast<const Unit*>(x),
                                                           static_cast<Unit*>(y), threads, call});
    });
  });
}

int LaunchGridParts(LaunchQueue queue, const GridSampleCall& call, uint32_t* keys, void* weights) {
  switch (call.options.mode) {
    case SampleMode::kLinear:
      return LaunchParts<SampleMode::kLinear>(queue, call, keys, weights);
    case SampleMode::kCubic:
      return LaunchParts<SampleMode::kCubic>(queue, call, keys, weights);
    case SampleMode::kNearest:
      break;
  }
  return LaunchParts<SampleMode::kNearest>(queue, call, keys, weights);
}

int LaunchGridSlopes(LaunchQueue queue, const GridSampleCall& call, const RealInput& dy,
                     const RealInput& x, const RealOutput& dgrid) {
  switch (call.options.mode) {
    case SampleMode::kLinear:
      return LaunchSlopes<SampleMode::kLinear>(queue, call, dy, x, dgrid);
    case SampleMode::kCubic:
      return LaunchSlopes<SampleMode::kCubic>(queue, call, dy, x, dgrid);
    case SampleMode::kNearest:
      break;
  }
  return LaunchSlopes<SampleMode::kNearest>(queue, call, dy, x, dgrid);
}

int LaunchAffineGrid(LaunchQueue queue, DType dtype, const AffineGridCall& call) {
  const int64_t points = call.samples * call.image[0] * call.image[1] * call.image[2];
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kGridThreads>(
        queue, GridOf(points),
        AffineGridBody<T>{static_cast<const T*>(call.theta), static_cast<T*>(call.grid), call});
  });
}

}  // namespace weft::cuda
