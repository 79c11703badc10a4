// One shard of a host tensor.
#ifndef WEFT_PLACEMENT_SHARDING_TENSOR_SHARD_H_
#define WEFT_PLACEMENT_SHARDING_TENSOR_SHARD_H_

#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "tensor/tensor.h"

namespace weft {

// A copy of shard `index` of `shards`; the tensor itself unless `sharding` is Split. Unimplemented
// for strings and elements smaller than a byte. REQUIRES: sharding.Validate(whole.shape()).ok().
absl::StatusOr<Tensor> ShardOfTensor(const Tensor& whole, const AxisSharding& sharding, int shards,
                                     int index);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_TENSOR_SHARD_H_
