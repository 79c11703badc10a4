#include "executor/lowering/shard_regions.h"

#include <utility>

namespace weft {

std::vector<CopyRegion> PackShards(const Shape& whole, const ShardedDim& dim,
                                   int64_t element_bytes) {
  const int64_t outer = whole.ProductOf(0, dim.axis) * dim.blocks;
  const int64_t row_bytes = whole.ProductOf(dim.axis + 1, whole.rank()) * element_bytes;
  const int64_t rest = whole.dim(dim.axis) / dim.blocks;
  std::vector<CopyRegion> regions;
  int64_t first = 0;
  int64_t packed = 0;
  for (const int64_t size : dim.sizes) {
    const int64_t bytes = size * row_bytes;
    regions.push_back({outer, bytes, rest * row_bytes, bytes, first * row_bytes, packed});
    first += size;
    packed += outer * bytes;
  }
  return regions;
}

std::vector<CopyRegion> UnpackShards(const Shape& whole, const ShardedDim& dim,
                                     int64_t element_bytes) {
  std::vector<CopyRegion> regions = PackShards(whole, dim, element_bytes);
  for (CopyRegion& region : regions) {
    std::swap(region.source_stride, region.target_stride);
    std::swap(region.source_offset, region.target_offset);
  }
  return regions;
}

}  // namespace weft
