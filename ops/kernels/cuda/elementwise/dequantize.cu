// DequantizeBlocks.
#include <algorithm>

#include "ops/kernels/cuda/elementwise/dequantize_body.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {
namespace {

// Some rows at a time, so that indices are int32_t.
constexpr int64_t kLimit = (int64_t{1} << 31) - 1;

template <typename T, int kBits>
int LaunchBits(const DequantizeBlocksCall& call) {
  using Body = DequantizeBlocksBody<T, kBits>;
  const int64_t blocks = (call.columns + call.block - 1) / call.block;
  Body body{.q = static_cast<const uint8_t*>(call.q),
            .scales = static_cast<const T*>(call.scales),
            .zeros = call.zeros,
            .groups = static_cast<const int32_t*>(call.groups),
            .y = static_cast<T*>(call.y),
            .count = 0,
            .packets = 0,
            .columns = call.columns,
            .blocks = blocks,
            .block_bytes = (call.block * kBits + 7) / 8,
            .zero_row_bytes = (blocks * kBits + 7) / 8,
            .row_divisor = FastDivisor<int32_t>(static_cast<int32_t>(call.columns)),
            .block_divisor = FastDivisor<int32_t>(static_cast<int32_t>(call.block)),
            .packed_zeros = call.packed_zeros,
            .report = call.report};
  const bool has_packets =
      call.groups == nullptr && call.columns % Body::kWidth == 0 && call.block % Body::kWidth == 0;
  const int64_t step = kLimit / call.columns;
  for (int64_t row = 0; row < call.rows; row += step) {
    const int64_t rows = std::min(step, call.rows - row);
    body.count = static_cast<int32_t>(rows * call.columns);
    body.packets =
        has_packets && IsAligned(body.y, sizeof(T) * Body::kWidth) ? body.count / Body::kWidth : 0;
    const int64_t threads = body.packets > 0 ? body.packets : body.count;
    const int code = Launch<kMapThreads>(call.queue, MapGrid(threads), body);
    if (code != 0) return code;
    body.q += rows * blocks * body.block_bytes;
    body.scales += rows * blocks;
    if (body.zeros != nullptr) {
      const int64_t bytes = call.packed_zeros ? rows * body.zero_row_bytes
                                              : rows * blocks * static_cast<int64_t>(sizeof(T));
      body.zeros = static_cast<const char*>(body.zeros) + bytes;
    }
    body.y += body.count;
  }
  return 0;
}

template <typename T>
int LaunchDequantizeBlocks(const DequantizeBlocksCall& call) {
  switch (call.bits) {
    case 2:
      return LaunchBits<T, 2>(call);
    case 4:
      return LaunchBits<T, 4>(call);
    default:
      return LaunchBits<T, 8>(call);
  }
}

}  // namespace

DequantizeBlocksLaunch FindDequantizeBlocks(DType dtype) {
  return ByType<DequantizeBlocksLaunch>(dtype, Floats(), [](auto type) -> DequantizeBlocksLaunch {
    return LaunchDequantizeBlocks<decltype(type)>;
  });
}

}  // namespace weft::cuda
