// Which strided copies lie between a tensor and its shards. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_SHARD_REGIONS_H_
#define WEFT_EXECUTOR_LOWERING_SHARD_REGIONS_H_

#include <cstdint>
#include <vector>

#include "executor/lowering/lowered_instruction.h"
#include "graph/schedule/node_collective.h"
#include "tensor/shape.h"

namespace weft {

// One region for each shard of a tensor of shape `whole` along a dimension: from its place in the
// tensor to its place among all shards, each stored whole, one after the other.
std::vector<CopyRegion> PackShards(const Shape& whole, const ShardedDim& dim,
                                   int64_t element_bytes);
// The other way.
std::vector<CopyRegion> UnpackShards(const Shape& whole, const ShardedDim& dim,
                                     int64_t element_bytes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_SHARD_REGIONS_H_
