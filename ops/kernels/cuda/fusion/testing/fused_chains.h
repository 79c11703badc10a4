// Chains of nodes as models have them, each as the one node that GPUs fuse it to: for tests and
// benchmarks.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_FUSED_CHAINS_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_FUSED_CHAINS_H_

#include <cstdint>
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

struct FusedChain {
  std::string name;  // "bias, Gelu"
  OpCase op_case;    // ai.weft::Fused, with all its outputs
};

// Gives an input of a chain: floats, or kBool for the mask of a Dropout.
using ChainInput = std::function<Tensor(const Shape& shape, DType dtype)>;

// The bias and Gelu of a linear layer, Dropout by its mask with scale and residual, both ends of a
// Softmax over rows, and the gradient of the second before a Gelu; on [rows, columns] of a type of
// floats. Internal where the rules of kCuda, which must be linked, leave more than one node of a
// chain. Makes the registry know ai.weft::Fused, as tests of single nodes need; one thread at a
// time.
absl::StatusOr<std::vector<FusedChain>> FusedChains(int64_t rows, int64_t columns, DType dtype,
                                                    const ChainInput& input);

// Fuses the nodes of a graph by the rules of kCuda, to one node. `tensors` has a tensor for each
// graph input. The errors of FusedChains.
absl::StatusOr<OpCase> FusedCaseOf(Graph& graph, const std::map<ValueId, Tensor>& tensors);

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_FUSED_CHAINS_H_
