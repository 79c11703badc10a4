#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/indexing/gather_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kGatherThreads = 256;
constexpr int64_t kGatherBlocks = int64_t{1} << 17;
// Indices of 32 bits: threads step over the end by less than that.
constexpr int64_t kSmallGather = int64_t{1} << 30;

template <typename Unit, typename Index>
int GatherUnits(LaunchQueue queue, const GatherCall& call) {
  using Body = GatherBody<Unit, Index>;
  const int64_t units = call.outer * call.count * call.row;
  const LaunchGrid grid{
      .blocks = Blocks((units + Body::kAtOnce - 1) / Body::kAtOnce, kGatherThreads, kGatherBlocks),
      .threads = kGatherThreads};
  return Launch<kGatherThreads>(
      queue, grid,
      Body{static_cast<const Unit*>(call.table), call.indices, static_cast<Unit*>(call.y),
           static_cast<Index>(units), call.rows, FastDivisor<Index>(static_cast<Index>(call.count)),
           FastDivisor<Index>(static_cast<Index>(call.row)), call.report});
}

int64_t RunsOf(int64_t count) { return (count + kSumRun - 1) / kSumRun; }

template <typename T, int kWidth, typename Index>
int SumRows(LaunchQueue queue, const SumRowsCall& call) {
  using Sum = RowSum<T>;
  const int64_t runs = RunsOf(call.count);
  const int64_t columns = call.inner / kWidth;
  const int64_t threads = call.outer * runs * columns;
  const LaunchGrid grid{.blocks = Blocks(threads, kGatherThreads, kGatherBlocks),
                        .threads = kGatherThreads};
  const FastDivisor<Index> by_run(static_cast<Index>(runs));
  const FastDivisor<Index> by_column(static_cast<Index>(columns));
  Sum* const partial = static_cast<Sum*>(call.partial);
  T* const dx = static_cast<T*>(call.dx);
  const int code = Launch<kGatherThreads>(
      queue, grid,
      SumRunsBody<T, kWidth, Index>{static_cast<const T*>(call.dy), call.keys, call.order, partial,
                                    dx, call.named, static_cast<Index>(threads),
                                    static_cast<Index>(call.count), call.rows, by_run, by_column});
  if (code != 0 || runs == 1) return code;
  return Launch<kGatherThreads>(
      queue, grid,
      SumHeadsBody<T, kWidth, Index>{call.keys, partial, dx, static_cast<Index>(threads),
                                     static_cast<Index>(call.count), call.rows, by_run, by_column});
}

template <typename Unit, typename Index>
int ClearUnnamed(LaunchQueue queue, const SumRowsCall& call, int64_t row) {
  using Body = ClearRowsBody<Unit, Index>;
  const int64_t units = call.outer * call.rows * row;
  const LaunchGrid grid{
      .blocks = Blocks((units + Body::kAtOnce - 1) / Body::kAtOnce, kGatherThreads, kGatherBlocks),
      .threads = kGatherThreads};
  return Launch<kGatherThreads>(
      queue, grid,
      Body{call.named, static_cast<Unit*>(call.dx), static_cast<Index>(units),
           FastDivisor<Index>(static_cast<Index>(call.rows)),
           FastDivisor<Index>(static_cast<Index>(row))});
}

bool IsAlignedTo(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

int SumNamedRows(LaunchQueue queue, DType dtype, const SumRowsCall& call) {
  if (call.count == 0) return 0;
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = kRowWidth<T>;
    const bool has_packets = call.inner % kWidth == 0 && IsAlignedTo(call.dy, sizeof(T) * kWidth) &&
                             IsAlignedTo(call.dx, sizeof(T) * kWidth);
    const bool is_small = call.outer * (RunsOf(call.count) + 1) * call.inner < kSmallGather &&
                          call.count < kSmallGather;
    if (is_small) {
      return has_packets ? SumRows<T, kWidth, int32_t>(queue, call)
                         : SumRows<T, 1, int32_t>(queue, call);
    }
    return has_packets ? SumRows<T, kWidth, int64_t>(queue, call)
                       : SumRows<T, 1, int64_t>(queue, call);
  });
}

}  // namespace

int LaunchGather(LaunchQueue queue, int unit, const GatherCall& call) {
  const int64_t units = call.outer * call.count * call.row;
  if (units == 0) return 0;
  return LaunchByWidth(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return units < kSmallGather ? GatherUnits<Unit, int32_t>(queue, call)
                                : GatherUnits<Unit, int64_t>(queue, call);
  });
}

int LaunchRowKeys(LaunchQueue queue, const RowKeysCall& call) {
  return Launch<kGatherThreads>(
      queue,
      {.blocks = Blocks(std::max(call.count, call.rows), kGatherThreads, kGatherBlocks),
       .threads = kGatherThreads},
      RowKeysBody{call});
}

size_t SumRowsBytes(DType dtype, int64_t outer, int64_t count, int64_t inner) {
  const int64_t width = dtype == DType::kFloat64 ? 8 : 4;
  return static_cast<size_t>(outer * RunsOf(count) * 2 * inner * width);
}

int LaunchSumRows(LaunchQueue queue, DType dtype, const SumRowsCall& call) {
  if (call.outer == 0 || call.rows == 0 || call.inner == 0) return 0;
  const int code = SumNamedRows(queue, dtype, call);
  if (code != 0) return code;
  const int64_t row = static_cast<int64_t>(DTypeBytes(dtype, call.inner)) / call.unit;
  return LaunchByWidth(call.unit, [&](auto zero) {
    using Unit = decltype(zero);
    return call.outer * call.rows * row < kSmallGather
               ? ClearUnnamed<Unit, int32_t>(queue, call, row)
               : ClearUnnamed<Unit, int64_t>(queue, call, row);
  });
}

int LaunchGatherElements(LaunchQueue queue, int bytes, const GatherElementsCall& call) {
  const LaunchGrid grid{.blocks = Blocks(call.count, kGatherThreads, kGatherBlocks),
                        .threads = kGatherThreads};
  return LaunchByWidth(bytes, [&](auto zero) {
    using T = decltype(zero);
    const T* const x = static_cast<const T*>(call.x);
    T* const y = static_cast<T*>(call.y);
    if (call.has_small_indices) {
      return Launch<kGatherThreads>(
          queue, grid,
          GatherElementsBody<T, int32_t>{x, call.indices, y, static_cast<int32_t>(call.count),
                                         call.size, call.stride, call.small, call.report});
    }
    return Launch<kGatherThreads>(
        queue, grid,
        GatherElementsBody<T, int64_t>{x, call.indices, y, call.count, call.size, call.stride,
                                       call.map, call.report});
  });
}

}  // namespace weft::cuda
