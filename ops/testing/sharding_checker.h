// Holds sharding rules against what the ops do.
//
//   EXPECT_TRUE(CheckSharding({.op = "MatMul", .inputs = {RandomTensor({4, 6}, 1), RandomTensor({6,
//   2}, 2)}}));
#ifndef WEFT_OPS_TESTING_SHARDING_CHECKER_H_
#define WEFT_OPS_TESTING_SHARDING_CHECKER_H_

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_rule.h"

namespace weft::testing {

struct ShardingCheckOptions {
  double tolerance = 1e-12;  // times the largest magnitude of the output
  // Inputs that no factor may split although the case would allow it are fine; but the rule must
  // offer at least so many (factor, shards) pairs that can be tried.
  int min_splits = 1;
};

// CheckShardingRule in float64 with the reference kernels.
::testing::AssertionResult CheckSharding(const OpCase& op_case,
                                         const ShardingCheckOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_SHARDING_CHECKER_H_
