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

template <typename M>
int LaunchMask(LaunchQueue queue, bool wide, const MaskToBias& convert) {
  const LaunchGrid grid = AttentionGrid(convert.count);
  if (wide) return Launch<kAttentionThreads>(queue, grid, MaskToBiasBody<M, double>{convert});
  return Launch<kAttentionThreads>(queue, grid, MaskToBiasBody<M, float>{convert});
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
  switch (mask_dtype) {
    case DType::kBool:
      return LaunchMask<bool>(queue, wide, convert);
    case DType::kFloat16:
      return LaunchMask<Float16>(queue, wide, convert);
    case DType::kBfloat16:
      return LaunchMask<Bfloat16>(queue, wide, convert);
    case DType::kFloat64:
      return LaunchMask<double>(queue, wide, convert);
    case DType::kInt8:
      return LaunchMask<int8_t>(queue, wide, convert);
    case DType::kInt16:
      return LaunchMask<int16_t>(queue, wide, convert);
    case DType::kInt32:
      return LaunchMask<int32_t>(queue, wide, convert);
    case DType::kInt64:
      return LaunchMask<int64_t>(queue, wide, convert);
    case DType::kUint8:
      return LaunchMask<uint8_t>(queue, wide, convert);
    case DType::kUint16:
      return LaunchMask<uint16_t>(queue, wide, convert);
    case DType::kUint32:
      return LaunchMask<uint32_t>(queue, wide, convert);
    case DType::kUint64:
      return LaunchMask<uint64_t>(queue, wide, convert);
    default:
      return LaunchMask<float>(queue, wide, convert);
  }
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
