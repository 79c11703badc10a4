#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/kernels/cuda/attention/attention_body.h"
#include "ops/kernels/cuda/attention/attention_launch.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kAttentionThreads = 256;
constexpr int64_t kAttentionBlocks = 16384;
// Keys of a row that a thread looks at before a block gets more threads.
constexpr int64_t kKeysOfThread = 4;

LaunchGrid AttentionGrid(int64_t count) {
  return {Blocks(count, kAttentionThreads, kAttentionBlocks), kAttentionThreads};
}

bool IsNarrow(int64_t count) { return count <= std::numeric_limits<int32_t>::max(); }

template <typename T>
int LaunchSoftmax(LaunchQueue queue, const AttentionSoftmax& softmax) {
  const int64_t rows = softmax.samples * softmax.heads * softmax.queries;
  const int64_t warps = (softmax.keys.total / kKeysOfThread + kWarp - 1) / kWarp;
  const auto threads =
      static_cast<int>(std::clamp<int64_t>(warps, 1, kAttentionThreads / kWarp) * kWarp);
  return Launch<kAttentionThreads>(queue, {Blocks(rows, 1), threads},
                                   AttentionSoftmaxBody<T>{softmax});
}

template <typename T>
int LaunchJoin(LaunchQueue queue, const JoinPast& join) {
  const int64_t count = join.batch * join.heads * (join.past + join.keys) * join.size;
  if (IsNarrow(count)) {
    return Launch<kAttentionThreads>(queue, AttentionGrid(count), JoinPastBody<T, uint32_t>{join});
  }
  return Launch<kAttentionThreads>(queue, AttentionGrid(count), JoinPastBody<T, int64_t>{join});
}

template <typename T>
int LaunchRotate(LaunchQueue queue, const RotatePairs& rotate) {
  const int64_t count = rotate.batch * rotate.heads * rotate.length * (rotate.size - rotate.half);
  if (IsNarrow(count)) {
    return Launch<kAttentionThreads>(queue, AttentionGrid(count),
                                     RotatePairsBody<T, uint32_t>{rotate});
  }
  return Launch<kAttentionThreads>(queue, AttentionGrid(count),
                                   RotatePairsBody<T, int64_t>{rotate});
}

}  // namespace

int LaunchAttentionSoftmax(LaunchQueue queue, DType dtype, const AttentionSoftmax& softmax) {
  if (dtype == DType::kFloat64) return LaunchSoftmax<double>(queue, softmax);
  if (dtype == DType::kFloat16) return LaunchSoftmax<Float16>(queue, softmax);
  if (dtype == DType::kBfloat16) return LaunchSoftmax<Bfloat16>(queue, softmax);
  return LaunchSoftmax<float>(queue, softmax);
}

int LaunchMaskToBias(LaunchQueue queue, DType mask_dtype, bool wide, const MaskToBias& convert) {
  const LaunchGrid grid = AttentionGrid(convert.count);
  if (wide) {
    return Launch<kAttentionThreads>(queue, grid, MaskToBiasBody<double>{convert, mask_dtype});
  }
  return Launch<kAttentionThreads>(queue, grid, MaskToBiasBody<float>{convert, mask_dtype});
}

int LaunchJoinPast(LaunchQueue queue, int width, const JoinPast& join) {
  if (width == 2) return LaunchJoin<uint16_t>(queue, join);
  if (width == 8) return LaunchJoin<uint64_t>(queue, join);
  return LaunchJoin<uint32_t>(queue, join);
}

int LaunchRotatePairs(LaunchQueue queue, DType dtype, const RotatePairs& rotate) {
  if (dtype == DType::kFloat64) return LaunchRotate<double>(queue, rotate);
  if (dtype == DType::kFloat16) return LaunchRotate<Float16>(queue, rotate);
  if (dtype == DType::kBfloat16) return LaunchRotate<Bfloat16>(queue, rotate);
  return LaunchRotate<float>(queue, rotate);
}

}  // namespace weft::cuda
