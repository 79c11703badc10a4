// Resize and ResizeGrad.
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/image/resize_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kImageThreads = 256;
constexpr int64_t kImageBlocks = int64_t{8} * 160 * 4;

LaunchGrid ImageGrid(int64_t count) {
  return {.blocks = Blocks(count, kImageThreads, kImageBlocks), .threads = kImageThreads};
}

template <typename S>
int LaunchPass(LaunchQueue queue, const AxisPassCall& call, const void* x, void* y) {
  const int64_t count = call.outer * call.output * call.inner;
  return Launch<kImageThreads>(queue, ImageGrid(count),
                               AxisPassBody<S>{static_cast<const S*>(x), static_cast<S*>(y),
                                               static_cast<const int64_t*>(call.starts),
                                               static_cast<const int64_t*>(call.indices),
                                               static_cast<const S*>(call.weights), count,
                                               call.input, call.output, call.inner});
}

template <typename T, typename S>
int LaunchNarrow(LaunchQueue queue, const void* x, void* y, int64_t count) {
  NarrowImageBody<T, S> body{};
  body.x = static_cast<const S*>(x);
  body.y = static_cast<T*>(y);
  body.count = count;
  if constexpr (std::is_integral_v<T>) {
    body.lowest = std::numeric_limits<T>::lowest();
    body.highest = std::numeric_limits<T>::max();
    body.low = static_cast<S>(body.lowest);
    body.high = static_cast<S>(body.highest);
  }
  return Launch<kImageThreads>(queue, ImageGrid(count), body);
}

}  // namespace

int LaunchAxisPass(LaunchQueue queue, DType sums, const AxisPassCall& call, const void* x,
                   void* y) {
  return sums == DType::kFloat64 ? LaunchPass<double>(queue, call, x, y)
                                 : LaunchPass<float>(queue, call, x, y);
}

int LaunchWidenImage(LaunchQueue queue, DType dtype, DType sums, const void* x, void* y,
                     int64_t count) {
  if (sums == DType::kFloat64) {
    return Launch<kImageThreads>(queue, ImageGrid(count),
                                 WidenImageBody<double>{x, static_cast<double*>(y), count, dtype});
  }
  return Launch<kImageThreads>(queue, ImageGrid(count),
                               WidenImageBody<float>{x, static_cast<float*>(y), count, dtype});
}

int LaunchNarrowImage(LaunchQueue queue, DType dtype, DType sums, const void* x, void* y,
                      int64_t count) {
  if (sums == DType::kFloat32) {
    return LaunchByType(dtype, LaunchTypes<Float16, Bfloat16>(), [&](auto zero) {
      return LaunchNarrow<decltype(zero), float>(queue, x, y, count);
    });
  }
  return LaunchByType(
      dtype,
      LaunchTypes<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, bool>(),
      [&](auto zero) { return LaunchNarrow<decltype(zero), double>(queue, x, y, count); });
}

int LaunchNearest(LaunchQueue queue, int bytes, const ResizedAxes& axes, const int64_t* tables,
                  const void* fill, const void* x, void* y) {
  return LaunchByWidth(bytes, [&](auto zero) {
    using T = decltype(zero);
    NearestBody<T> body{static_cast<const T*>(x), static_cast<T*>(y), tables, T{}, axes};
    std::memcpy(&body.fill, fill, sizeof(T));
    return Launch<kImageThreads>(queue, ImageGrid(axes.count), body);
  });
}

}  // namespace weft::cuda
