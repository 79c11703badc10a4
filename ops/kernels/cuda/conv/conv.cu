#include <cstdint>
#include <limits>

#include "ops/kernels/cuda/conv/conv_body.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kConvThreads = 256;
// Enough blocks for every multiprocessor; each walks over the rest.
constexpr int64_t kConvBlocks = 16384;

LaunchGrid ConvGrid(int64_t count) {
  return {Blocks(count, kConvThreads, kConvBlocks), kConvThreads};
}

// Launches Body<T, Index> for `count` elements, with an index that is wide enough.
template <template <typename, typename> class Body, typename T, typename Arguments>
int LaunchCounted(LaunchQueue queue, int64_t count, const Arguments& arguments) {
  if (count <= std::numeric_limits<int32_t>::max()) {
    return Launch<kConvThreads>(queue, ConvGrid(count), Body<T, uint32_t>{arguments});
  }
  return Launch<kConvThreads>(queue, ConvGrid(count), Body<T, int64_t>{arguments});
}

template <template <typename, typename> class Body, typename Arguments>
int LaunchConvByType(LaunchQueue queue, DType dtype, int64_t count, const Arguments& arguments) {
  if (dtype == DType::kFloat64) return LaunchCounted<Body, double>(queue, count, arguments);
  if (dtype == DType::kFloat16) return LaunchCounted<Body, Float16>(queue, count, arguments);
  if (dtype == DType::kBfloat16) return LaunchCounted<Body, Bfloat16>(queue, count, arguments);
  return LaunchCounted<Body, float>(queue, count, arguments);
}

template <typename T>
int LaunchChannelSums(LaunchQueue queue, const SumChannels& sum) {
  const LaunchGrid grid = {Blocks(sum.channels * sum.parts, 1), kConvThreads};
  const bool narrow = sum.samples * sum.plane <= std::numeric_limits<int32_t>::max();
  const int code = narrow ? Launch<kConvThreads>(queue, grid, SumPartsBody<T, uint32_t>{sum})
                          : Launch<kConvThreads>(queue, grid, SumPartsBody<T, int64_t>{sum});
  if (code != 0) return code;
  return Launch<kConvThreads>(queue, ConvGrid(sum.channels), AddPartsBody<T>{sum});
}

}  // namespace

int LaunchUnfold(LaunchQueue queue, DType dtype, const Unfold& unfold) {
  return LaunchConvByType<UnfoldBody>(
      queue, dtype, unfold.samples * unfold.groups * unfold.channels * unfold.positions, unfold);
}

int LaunchFold(LaunchQueue queue, DType dtype, const Fold& fold) {
  return LaunchConvByType<FoldColumnsBody>(
      queue, dtype, fold.samples * fold.groups * fold.channels * fold.window.large_size(), fold);
}

int LaunchFillChannels(LaunchQueue queue, DType dtype, const FillChannels& fill) {
  return LaunchConvByType<FillChannelsBody>(queue, dtype, fill.count, fill);
}

int LaunchAddPartials(LaunchQueue queue, DType dtype, const AddPartials& add) {
  const LaunchGrid grid = ConvGrid(add.count);
  if (dtype == DType::kFloat64) {
    return Launch<kConvThreads>(queue, grid, AddPartialsBody<double>{add});
  }
  if (dtype == DType::kFloat16) {
    return Launch<kConvThreads>(queue, grid, AddPartialsBody<Float16>{add});
  }
  if (dtype == DType::kBfloat16) {
    return Launch<kConvThreads>(queue, grid, AddPartialsBody<Bfloat16>{add});
  }
  return Launch<kConvThreads>(queue, grid, AddPartialsBody<float>{add});
}

int LaunchSumChannels(LaunchQueue queue, DType dtype, const SumChannels& sum) {
  if (dtype == DType::kFloat64) return LaunchChannelSums<double>(queue, sum);
  if (dtype == DType::kFloat16) return LaunchChannelSums<Float16>(queue, sum);
  if (dtype == DType::kBfloat16) return LaunchChannelSums<Bfloat16>(queue, sum);
  return LaunchChannelSums<float>(queue, sum);
}

}  // namespace weft::cuda
