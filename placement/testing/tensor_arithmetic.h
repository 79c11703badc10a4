// Sums and pieces of host tensors, slow and plain. Internal to placement/testing.
#ifndef WEFT_PLACEMENT_TESTING_TENSOR_ARITHMETIC_H_
#define WEFT_PLACEMENT_TESTING_TENSOR_ARITHMETIC_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace weft::testing {

// a + b in their dtype: bits as of one addition per element.
absl::StatusOr<Tensor> AddTensors(const Tensor& a, const Tensor& b);
// The sum of at least one tensor, from the left.
absl::StatusOr<Tensor> SumInOrder(const std::vector<Tensor>& terms);
// The sum in the order of the binary tree that splits n > 1 terms at the largest power of two below
// n.
absl::StatusOr<Tensor> SumInTree(const std::vector<Tensor>& terms);
// Puts shards of sizes[i] rows of the split dimension's rest together. The inverse of
// ShardOfTensor.
absl::StatusOr<Tensor> JoinShards(const std::vector<Tensor>& shards, const AxisSharding& sharding);
// One node with kernels of the reference set, or production ones where there is none (data
// movement); with `kernels` those. Operands lie in their global tensors as their values' placements
// say.
absl::StatusOr<std::vector<Tensor>> RunNode(const Graph& graph, const Node& node,
                                            std::vector<Tensor> inputs,
                                            const KernelRegistry* kernels = nullptr);

}  // namespace weft::testing

#endif  // WEFT_PLACEMENT_TESTING_TENSOR_ARITHMETIC_H_
