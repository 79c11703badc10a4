// Holds a sharding rule against what the op does, without a test framework.
#ifndef WEFT_OPS_TESTING_SHARDING_RULE_H_
#define WEFT_OPS_TESTING_SHARDING_RULE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "ops/kernel.h"
#include "ops/testing/op_case.h"

namespace weft::testing {

struct ShardingRuleOptions {
  const KernelRegistry* registry = nullptr;  // null = KernelRegistry::Global()
  double tolerance = 1e-12;                  // times the largest magnitude of the output
  // The rule must offer at least so many (factor, shards) pairs that can be tried.
  int min_splits = 1;
};

// For every parallel or sum factor of the schema's rule and 2 and 3 shards: slices the inputs by
// the rule, localizes the node, runs it per shard (with the right slices), and puts the outputs
// together: they equal the unsharded ones. For every linear set: the set's inputs are split into
// two random addends; the two results add up to the whole one. The rule's factors multiply to the
// dimensions of each operand. Internal, naming factor, shards and element, where that is not so.
absl::Status CheckShardingRule(const OpCase& op_case, const ShardingRuleOptions& options);

// Shard `index` of `shards` of a host tensor with byte-sized elements.
absl::StatusOr<Tensor> SliceOfShard(const Tensor& tensor, const AxisSharding& sharding, int shards,
                                    int index);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_SHARDING_RULE_H_
