#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/linear/einsum_body.h"
#include "ops/kernels/cuda/linear/einsum_launch.h"

namespace weft::cuda {
namespace {

constexpr int kSumThreads = 256;

template <typename T>
int LaunchSumOf(LaunchQueue queue, const AxisSumCall& call, const void* x, void* y) {
  return Launch<kSumThreads>(
      queue, {.blocks = Blocks(call.outputs * kWarp, kSumThreads), .threads = kSumThreads},
      AxisSumBody<T>{call, static_cast<const T*>(x), static_cast<T*>(y)});
}

}  // namespace

int LaunchAxisSum(LaunchQueue queue, DType dtype, const AxisSumCall& call, const void* x, void* y) {
  // Sums of two's complement do not know the sign.
  if (IsInteger(dtype)) {
    return LaunchByWidth(static_cast<int>(DTypeBytes(dtype, 1)), [&](auto zero) {
      if constexpr (sizeof(zero) == sizeof(SixteenBytes)) {
        return kNoSuchBody;
      } else {
        return LaunchSumOf<decltype(zero)>(queue, call, x, y);
      }
    });
  }
  return LaunchByType(dtype, FloatLaunches(),
                      [&](auto zero) { return LaunchSumOf<decltype(zero)>(queue, call, x, y); });
}

}  // namespace weft::cuda
