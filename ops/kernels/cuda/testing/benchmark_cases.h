// What gpu_benchmark runs of each family of kernels: operators and sizes. Values do not matter.
#ifndef WEFT_OPS_KERNELS_CUDA_TESTING_BENCHMARK_CASES_H_
#define WEFT_OPS_KERNELS_CUDA_TESTING_BENCHMARK_CASES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/testing/op_case.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace weft::testing {

struct BenchmarkCase {
  std::string name;
  OpCase op_case;  // floating inputs are not initialised, unless a kernel reads them on the host
  // Floating-point operations, or those on whole numbers; 0: memory bounds it, and bytes are
  // counted.
  double operations = 0;
  double low = -1;  // of the inputs' values
};

// Not initialised.
Tensor Uninitialized(const Shape& shape, DType dtype);

// Kernels that memory bounds, of 80 MB and more each. `dtype`: float32 or a type of 16 bits.
std::vector<BenchmarkCase> MemoryCases(DType dtype);
// Kernels that something else bounds, by our own way: a convolution, attention, a recurrent layer,
// a product of whole numbers of 8 bits.
std::vector<BenchmarkCase> WorkCases(DType dtype);

// Conv and its gradients, of some layers of ResNet-50 with 64 images.
std::vector<BenchmarkCase> ConvolutionCases(DType dtype);
// Normalizations and their gradients: rows of a GPT, and images of ResNet-50 with 64 of them.
std::vector<BenchmarkCase> NormalizationCases(DType dtype);

// Causal attention of a GPT: 8 samples of 1,024 tokens, 12 heads of 64. `dtype` has 16 bits.
BenchmarkCase AttentionForward(DType dtype);
// Its gradient.
struct AttentionGradientCase {
  std::string name;
  double operations = 0;
  OpCase joined;            // AttentionGrad (ops/fusion/attention_gradient.h): one node
  std::vector<OpCase> own;  // the nodes of the gradient rule, in order
};
// The errors of the rule. Makes the joined node's schema known, once.
absl::StatusOr<AttentionGradientCase> AttentionBackward(DType dtype);

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_TESTING_BENCHMARK_CASES_H_
