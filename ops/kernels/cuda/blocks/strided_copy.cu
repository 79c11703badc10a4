#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/blocks/strided_copy_body.h"
#include "ops/kernels/cuda/blocks/strided_copy_launch.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kCopyThreads = 256;
// Of blocks in a grid: threads walk beyond. Indices of 32 bits rely on it (strided_copy.cc).
constexpr int64_t kCopyBlocks = int64_t{1} << 17;

template <typename Index>
const BroadcastMap<2, Index>& MapOf(const CopyPlan& plan) {
  if constexpr (std::is_same_v<Index, int32_t>) {
    return plan.small;
  } else {
    return plan.large;
  }
}

template <typename T, int kWidth, bool kRepeats, typename Index>
int CopyUnits(LaunchQueue queue, const CopyPlan& plan, const T* from, T* to) {
  using Body = StridedCopyBody<T, kWidth, kRepeats, Index>;
  const LaunchGrid grid{
      .blocks = Blocks((plan.count + Body::kAtOnce - 1) / Body::kAtOnce, kCopyThreads, kCopyBlocks),
      .threads = kCopyThreads};
  return Launch<kCopyThreads>(queue, grid,
                              Body{from, to, static_cast<Index>(plan.count), MapOf<Index>(plan)});
}

template <typename T, int kPack, typename Index>
int Transpose(LaunchQueue queue, const CopyPlan& plan, const T* from, T* to) {
  using Body = TransposeBody<T, kPack, Index>;
  const int64_t row_tiles = (plan.rows + Body::kTile - 1) / Body::kTile;
  const int64_t column_tiles = (plan.columns + Body::kTile - 1) / Body::kTile;
  const int64_t tiles = plan.count * row_tiles * column_tiles;
  const LaunchGrid grid{.blocks = std::min(tiles, kCopyBlocks), .threads = kTileThreads};
  return Launch<kTileThreads>(
      queue, grid,
      Body{from, to, tiles, FastDivisor<Index>(static_cast<Index>(row_tiles)),
           FastDivisor<Index>(static_cast<Index>(column_tiles)), static_cast<Index>(plan.rows),
           static_cast<Index>(plan.columns), static_cast<Index>(plan.from_stride),
           static_cast<Index>(plan.to_stride), MapOf<Index>(plan)});
}

template <typename T, int kPack, typename Index>
int TransposeSquares(LaunchQueue queue, const CopyPlan& plan, const T* from, T* to) {
  using Body = SquareTransposeBody<T, kPack, Index>;
  const int64_t row_tiles = (plan.rows + Body::kTile - 1) / Body::kTile;
  const int64_t column_tiles = (plan.columns + Body::kTile - 1) / Body::kTile;
  const int64_t matrix_tiles = row_tiles * column_tiles;
  const int64_t tiles = plan.count * matrix_tiles;
  const LaunchGrid grid{.blocks = std::min(tiles, kCopyBlocks), .threads = kTileThreads};
  return Launch<kTileThreads>(
      queue, grid,
      Body{from, to, tiles, FastDivisor<Index>(static_cast<Index>(matrix_tiles)),
           FastDivisor<Index>(static_cast<Index>(kTransposeBand * column_tiles)),
           static_cast<Index>(row_tiles), static_cast<Index>(plan.rows),
           static_cast<Index>(plan.columns), static_cast<Index>(plan.from_stride),
           static_cast<Index>(plan.to_stride), MapOf<Index>(plan)});
}

template <typename T, typename Index>
int TransposeOf(LaunchQueue queue, const CopyPlan& plan, const T* from, T* to) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  if constexpr (kBytes > 1 && kBytes < 16) {
    if (plan.pack == 16 / kBytes) {
      return TransposeSquares<T, 16 / kBytes, Index>(queue, plan, from, to);
    }
  }
  if constexpr (kBytes == 2) {
    if (plan.pack == 4) return TransposeSquares<T, 4, Index>(queue, plan, from, to);
  }
  if constexpr (kBytes < 4) {
    if (plan.pack > 1) return Transpose<T, 4 / kBytes, Index>(queue, plan, from, to);
  }
  return Transpose<T, 1, Index>(queue, plan, from, to);
}

template <typename T, typename Index>
int CopyOf(LaunchQueue queue, const CopyPlan& plan, const void* from, void* to) {
  const T* const source = static_cast<const T*>(from) + plan.from;
  T* const target = static_cast<T*>(to) + plan.to;
  constexpr int kBytes = static_cast<int>(sizeof(T));
  switch (plan.way) {
    case CopyWay::kUnits:
      if constexpr (kBytes == 16) {
        return CopyUnits<uint64_t, 2, false, Index>(queue, plan,
                                                    reinterpret_cast<const uint64_t*>(source),
                                                    reinterpret_cast<uint64_t*>(target));
      } else {
        return CopyUnits<T, 1, false, Index>(queue, plan, source, target);
      }
    case CopyWay::kRepeats:
      if constexpr (kBytes < 16) {
        return CopyUnits<T, 16 / kBytes, true, Index>(queue, plan, source, target);
      }
      break;
    case CopyWay::kTransposes:
      return TransposeOf<T, Index>(queue, plan, source, target);
  }
  return kNoSuchBody;
}

}  // namespace

int LaunchCopy(LaunchQueue queue, const CopyPlan& plan, const void* from, void* to) {
  if (plan.count == 0) return 0;
  return LaunchByWidth(plan.unit, [&](auto unit) {
    using T = decltype(unit);
    return plan.has_small_indices ? CopyOf<T, int32_t>(queue, plan, from, to)
                                  : CopyOf<T, int64_t>(queue, plan, from, to);
  });
}

int LaunchFill(LaunchQueue queue, const void* pattern, void* to, int64_t bytes) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % 16 == 0;
  FillBody body{static_cast<uint32_t*>(to), is_aligned ? bytes / 16 : 0, bytes, {}};
  std::memcpy(body.pattern, pattern, sizeof(body.pattern));
  const int64_t threads = is_aligned ? (bytes + 15) / 16 : bytes;
  return Launch<kCopyThreads>(
      queue, {.blocks = Blocks(threads, kCopyThreads, 132 * 16), .threads = kCopyThreads}, body);
}

int LaunchClear(LaunchQueue queue, void* to, int64_t bytes) {
  constexpr uint32_t kZeros[4] = {};
  return LaunchFill(queue, kZeros, to, bytes);
}

}  // namespace weft::cuda
