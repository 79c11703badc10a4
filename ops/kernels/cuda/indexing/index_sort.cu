#include <algorithm>

#include "ops/kernels/cuda/indexing/index_sort_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

int64_t RadixBlocks(int64_t count) { return (count + kRadixKeys - 1) / kRadixKeys; }

// Of eight bits each.
int RadixPasses(int64_t limit) {
  int passes = 1;
  while (passes < 4 && (limit - 1) >> (8 * passes) != 0) ++passes;
  return passes;
}

}  // namespace

size_t IndexSort::workspace_bytes() const {
  int64_t words = count;                                                   // keys
  if (count > kRankedKeys) words += count + kDigits * RadixBlocks(count);  // an order, and counts
  return static_cast<size_t>((words * 4 + 15) / 16 * 16);
}

uint32_t* IndexSort::Keys(uint32_t* sorted_keys, void* workspace) const {
  // Passes move keys to and fro between the workspace and sorted_keys, and end in the latter.
  const bool ends_where_it_begins = count > kRankedKeys && RadixPasses(limit) % 2 == 0;
  return ends_where_it_begins ? sorted_keys : static_cast<uint32_t*>(workspace);
}

int IndexSort::Launch(LaunchQueue queue, uint32_t* sorted_keys, uint32_t* order,
                      void* workspace) const {
  if (count == 0) return 0;
  uint32_t* const spare_keys = static_cast<uint32_t*>(workspace);
  if (count <= kRankedKeys) {
    const LaunchGrid grid{.blocks = (count + kRankWarps - 1) / kRankWarps, .threads = kRankThreads};
    return cuda::Launch<kRankThreads>(
        queue, grid, RankSortBody{spare_keys, sorted_keys, order, static_cast<int32_t>(count)});
  }
  const int64_t blocks = RadixBlocks(count);
  uint32_t* const spare_order = spare_keys + count;
  uint32_t* const counts = spare_order + count;
  const int passes = RadixPasses(limit);
  uint32_t* from_keys = Keys(sorted_keys, workspace);
  uint32_t* to_keys = from_keys == sorted_keys ? spare_keys : sorted_keys;
  uint32_t* from_order = nullptr;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 8 * pass;
    uint32_t* const to_order = to_keys == sorted_keys ? order : spare_order;
    int code = cuda::Launch<kRadixThreads>(queue, {.blocks = blocks, .threads = kRadixThreads},
                                           RadixCountBody{from_keys, counts, count, shift});
    if (code != 0) return code;
    code = cuda::Launch<kScanThreads>(queue, {.blocks = 1, .threads = kScanThreads},
                                      ScanBody{counts, kDigits * blocks});
    if (code != 0) return code;
    code = cuda::Launch<kRadixThreads>(
        queue, {.blocks = blocks, .threads = kRadixThreads},
        RadixMoveBody{from_keys, from_order, counts, to_keys, to_order, count, shift});
    if (code != 0) return code;
    std::swap(from_keys, to_keys);
    from_order = to_order;
  }
  return 0;
}

}  // namespace weft::cuda
