// Products joined with what follows them, as cases: for tests and for gpu_benchmark.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_JOINED_PRODUCTS_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_JOINED_PRODUCTS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/testing/op_case.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace weft::testing {

// A node of JoinedProduct, and its parts in order, each with operands of its own: those that other
// parts compute are zeros.
struct JoinedCase {
  std::string name;
  OpCase joined;
  std::vector<OpCase> parts;
};

// All nodes of `graph`, joined to one; Internal where they become more. `tensors`: of its inputs.
absl::StatusOr<JoinedCase> JoinedCaseOf(Graph& graph, const std::map<ValueId, Tensor>& tensors);

// The outputs of the node, each part computed by `run` from what those before it gave.
absl::StatusOr<std::vector<Tensor>> OutputsOfJoinedParts(
    const OpCase& joined,
    const std::function<absl::StatusOr<std::vector<Tensor>>(const OpCase& part)>& run);

// What a layer of `rows` rows, from `width` to `wide` columns, and its gradient have of them: bias;
// bias and another matrix; bias and Gelu; the same with what Gelu reads; the gradient of Gelu; the
// gradients of weights and bias. `input` makes the operands.
absl::StatusOr<std::vector<JoinedCase>> JoinedCasesOfLayer(
    int64_t rows, int64_t width, int64_t wide, DType dtype,
    const std::function<Tensor(const Shape&, DType)>& input);

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_JOINED_PRODUCTS_H_
