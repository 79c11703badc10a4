#include <cstdint>
#include <limits>

#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/conv/conv_direct_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kDirectThreads = 256;
constexpr int64_t kDirectBlocks = 16384;

template <template <typename, typename> class Body, typename T>
int LaunchElements(LaunchQueue queue, int64_t count, const DirectConv& conv) {
  const LaunchGrid grid = {Blocks(count, kDirectThreads, kDirectBlocks), kDirectThreads};
  if (count <= std::numeric_limits<int32_t>::max()) {
    return Launch<kDirectThreads>(queue, grid, Body<T, uint32_t>{conv});
  }
  return Launch<kDirectThreads>(queue, grid, Body<T, int64_t>{conv});
}

template <template <typename, typename> class Body>
int LaunchDirectByType(LaunchQueue queue, DType dtype, int64_t count, const DirectConv& conv) {
  if (dtype == DType::kFloat64) return LaunchElements<Body, double>(queue, count, conv);
  if (dtype == DType::kFloat16) return LaunchElements<Body, Float16>(queue, count, conv);
  if (dtype == DType::kBfloat16) return LaunchElements<Body, Bfloat16>(queue, count, conv);
  return LaunchElements<Body, float>(queue, count, conv);
}

template <typename T>
int LaunchWeights(LaunchQueue queue, const DirectConv& conv) {
  const int64_t count =
      conv.groups * conv.small_channels * conv.large_channels * conv.window.taps();
  const LaunchGrid grid = {Blocks(count, 1), kDirectThreads};
  if (conv.samples * conv.window.small_size() <= std::numeric_limits<int32_t>::max()) {
    return Launch<kDirectThreads>(queue, grid, DirectWeightsBody<T, uint32_t>{conv});
  }
  return Launch<kDirectThreads>(queue, grid, DirectWeightsBody<T, int64_t>{conv});
}

}  // namespace

int LaunchDirectSmall(LaunchQueue queue, DType dtype, const DirectConv& conv) {
  const int64_t channels = conv.groups * conv.small_channels;
  return LaunchDirectByType<DirectSmallBody>(
      queue, dtype, conv.samples * channels * conv.window.small_size(), conv);
}

int LaunchDirectLarge(LaunchQueue queue, DType dtype, const DirectConv& conv) {
  const int64_t channels = conv.groups * conv.large_channels;
  return LaunchDirectByType<DirectLargeBody>(
      queue, dtype, conv.samples * channels * conv.window.large_size(), conv);
}

int LaunchDirectWeights(LaunchQueue queue, DType dtype, const DirectConv& conv) {
  if (dtype == DType::kFloat64) return LaunchWeights<double>(queue, conv);
  if (dtype == DType::kFloat16) return LaunchWeights<Float16>(queue, conv);
  if (dtype == DType::kBfloat16) return LaunchWeights<Bfloat16>(queue, conv);
  return LaunchWeights<float>(queue, conv);
}

}  // namespace weft::cuda
