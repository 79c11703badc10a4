#include "ops/testing/sharding_checker.h"

namespace weft::testing {

::testing::AssertionResult CheckSharding(const OpCase& op_case,
                                         const ShardingCheckOptions& options) {
  const absl::Status status = CheckShardingRule(
      InFloat64(op_case), {&KernelRegistry::Reference(), options.tolerance, options.min_splits});
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << op_case.ToString() << ": " << status.message();
}

}  // namespace weft::testing
