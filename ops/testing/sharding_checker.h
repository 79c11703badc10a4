// Holds sharding rules against what the ops do.
//
//   EXPECT_TRUE(CheckSharding({.op = "MatMul", .inputs = {RandomTensor({4, 6}, 1), RandomTensor({6,
//   2}, 2)}}));
#ifndef WEFT_OPS_TESTING_SHARDING_CHECKER_H_
#define WEFT_OPS_TESTING_SHARDING_CHECKER_H_

#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"

namespace weft::testing {

struct ShardingCheckOptions {
  double tolerance = 1e-12;  // times the largest magnitude of the output
  // Inputs that no factor may split although the case would allow it are fine; but the rule must
  // offer at least so many (factor, shards) pairs that can be tried.
  int least_splits = 1;
};

// For every parallel or sum factor of the schema's rule and 2 and 3 shards: slices the inputs by
// the rule, localizes the node, runs it per shard in float64 with the reference kernels (with the
// right placements), and puts the outputs together: they equal the unsharded ones. For every linear
// set: the set's inputs are split into two random addends; the two results add up to the whole one.
// The rule's factors multiply to the dimensions of each operand.
::testing::AssertionResult CheckSharding(const OpCase& op_case,
                                         const ShardingCheckOptions& options = {});

// Shard `index` of `shards` of a host tensor with byte-sized elements.
absl::StatusOr<Tensor> SliceOfShard(const Tensor& tensor, const AxisSharding& sharding, int shards,
                                    int index);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_SHARDING_CHECKER_H_
