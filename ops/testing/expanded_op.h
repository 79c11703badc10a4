// Runs an op by the expansion that its schema declares.
#ifndef WEFT_OPS_TESTING_EXPANDED_OP_H_
#define WEFT_OPS_TESTING_EXPANDED_OP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ops/testing/op_tester.h"
#include "tensor/tensor.h"

namespace weft::testing {

// The wanted outputs of the case, computed by the nodes that its op expands to, with the production
// kernels. Unimplemented when the schema has no expansion.
absl::StatusOr<std::vector<Tensor>> RunExpanded(const OpCase& op_case);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EXPANDED_OP_H_
