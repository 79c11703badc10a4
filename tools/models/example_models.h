// Untrained models to start from.
#ifndef WEFT_TOOLS_MODELS_EXAMPLE_MODELS_H_
#define WEFT_TOOLS_MODELS_EXAMPLE_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

std::vector<std::string> ExampleModelNames();

// The graph of an example: input `x` float32 [N,1,28,28], output `logits` float32 [N,10], weights
// drawn from `seed` uniformly in +-1 / sqrt(inputs of a unit), as PyTorch draws those of its linear
// and convolution layers (Kaiming-uniform with a = sqrt(5); He et al.: "Delving deep into
// rectifiers", ICCV 2015). InvalidArgument for an unknown name.
//   "lenet"  LeCun et al.: "Gradient-based learning applied to document recognition", Proc. IEEE
//   1998;
//            with Relu and max pooling
//   "mlp"    784 - 256 - 128 - 10 with Relu
//   "swiglu" 784 - 128 - 10 with SwiGLU, the custom op of docs/custom-ops.md; FailedPrecondition
//   when
//            its library is not loaded
absl::StatusOr<Graph> BuildExampleModel(const std::string& name, uint64_t seed);

// The same as the bytes of an ONNX file (operator set 17).
absl::StatusOr<std::string> ExampleModelFile(const std::string& name, uint64_t seed);

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_EXAMPLE_MODELS_H_
