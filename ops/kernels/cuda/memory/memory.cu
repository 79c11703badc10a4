#include <algorithm>
#include <cstdint>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/memory/memory_body.h"
#include "ops/kernels/cuda/memory/memory_launch.h"
#include "tensor/dtype.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
// Enough for the largest GPU to have all its threads; the rest is walked.
constexpr int64_t kMaxBlocks = 2112;

bool IsMultiple(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

LaunchGrid GridFor(int64_t count) { return {Blocks(count, kThreads, kMaxBlocks), kThreads}; }

template <typename T, int N>
int LaunchCopyOf(LaunchQueue queue, const RowsToCopy& rows, const void* from, void* into) {
  constexpr int64_t kWord = sizeof(T) * N;
  const int64_t words = rows.bytes / kWord;
  int column_bits = 0;
  while ((1 << column_bits) < kThreads && (1 << column_bits) < words) ++column_bits;
  const int64_t columns = int64_t{1} << column_bits;
  LaunchGrid grid{Blocks(rows.rows, static_cast<int>(kThreads / columns), kMaxBlocks), kThreads};
  // Few rows that are long: several blocks for each.
  grid.blocks_y = std::min((words + columns - 1) / columns, kMaxBlocks / grid.blocks);
  const CopyRowsBody<T, N> body{static_cast<const T*>(from),
                                static_cast<T*>(into),
                                rows.rows,
                                words,
                                rows.from_stride / static_cast<int64_t>(sizeof(T)),
                                rows.into_stride / static_cast<int64_t>(sizeof(T)),
                                column_bits,
                                grid.blocks_y};
  return Launch<kThreads>(queue, grid, body);
}

}  // namespace

template <typename T>
int LaunchSum(LaunchQueue queue, int64_t elements, const T* from, T* into) {
  if (elements == 0) return 0;
  constexpr int kPacket = kWidest<T>;
  if (IsMultiple(from, 16) && IsMultiple(into, 16)) {
    const int64_t packets = (elements + kPacket - 1) / kPacket;
    return Launch<kThreads>(queue, GridFor(packets), SumBody<T, kPacket>{from, into, elements});
  }
  return Launch<kThreads>(queue, GridFor(elements), SumBody<T, 1>{from, into, elements});
}

template int LaunchSum(LaunchQueue, int64_t, const float*, float*);
template int LaunchSum(LaunchQueue, int64_t, const double*, double*);
template int LaunchSum(LaunchQueue, int64_t, const Float16*, Float16*);
template int LaunchSum(LaunchQueue, int64_t, const Bfloat16*, Bfloat16*);
template int LaunchSum(LaunchQueue, int64_t, const int8_t*, int8_t*);
template int LaunchSum(LaunchQueue, int64_t, const int16_t*, int16_t*);
template int LaunchSum(LaunchQueue, int64_t, const int32_t*, int32_t*);
template int LaunchSum(LaunchQueue, int64_t, const int64_t*, int64_t*);
template int LaunchSum(LaunchQueue, int64_t, const uint8_t*, uint8_t*);
template int LaunchSum(LaunchQueue, int64_t, const uint16_t*, uint16_t*);
template int LaunchSum(LaunchQueue, int64_t, const uint32_t*, uint32_t*);
template int LaunchSum(LaunchQueue, int64_t, const uint64_t*, uint64_t*);

int LaunchCopyRows(LaunchQueue queue, const RowsToCopy& rows, const void* from, void* into) {
  if (rows.rows == 0 || rows.bytes == 0) return 0;
  const auto are_multiples = [&](int64_t word) {
    return rows.bytes % word == 0 && rows.from_stride % word == 0 && rows.into_stride % word == 0 &&
           IsMultiple(from, word) && IsMultiple(into, word);
  };
  if (are_multiples(16)) return LaunchCopyOf<uint32_t, 4>(queue, rows, from, into);
  if (are_multiples(8)) return LaunchCopyOf<uint32_t, 2>(queue, rows, from, into);
  if (are_multiples(4)) return LaunchCopyOf<uint32_t, 1>(queue, rows, from, into);
  if (are_multiples(2)) return LaunchCopyOf<uint16_t, 1>(queue, rows, from, into);
  return LaunchCopyOf<uint8_t, 1>(queue, rows, from, into);
}

int LaunchSetFirst(LaunchQueue queue, int64_t value, int64_t* first) {
  return Launch<kWarp>(queue, {1, kWarp}, SetFirstBody{first, value});
}

template <typename T>
int LaunchFindNonFinite(LaunchQueue queue, int64_t elements, const T* data, int64_t none,
                        int64_t* first) {
  return Launch<kThreads>(queue, GridFor(elements),
                          FindNonFiniteBody<T>{data, elements, first, none});
}

template int LaunchFindNonFinite(LaunchQueue, int64_t, const float*, int64_t, int64_t*);
template int LaunchFindNonFinite(LaunchQueue, int64_t, const double*, int64_t, int64_t*);
template int LaunchFindNonFinite(LaunchQueue, int64_t, const Float16*, int64_t, int64_t*);
template int LaunchFindNonFinite(LaunchQueue, int64_t, const Bfloat16*, int64_t, int64_t*);

}  // namespace weft::cuda
