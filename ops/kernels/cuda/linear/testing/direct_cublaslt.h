// DirectCublasLt: cuBLASLt as a program without Weft would call it. The yardstick of gpu_benchmark.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_DIRECT_CUBLASLT_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_DIRECT_CUBLASLT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/cuda/symbol_source.h"
#include "tensor/dtype.h"

namespace weft::testing {

// Y = A B of dense row-major matrices: A [m, k], B [k, n], Y [m, n], all of `dtype` (float32,
// float16 or bfloat16), summed in float32.
struct DirectProduct {
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  int64_t m = 0, n = 0, k = 0;
};

// Shares nothing with cublaslt.cc, and asks more of the library: any way of adding up, 128 MiB of
// workspace, and the first eight algorithms that its heuristic proposes, so that whoever times them
// can take the fastest. Used by one thread, with the card as its current device.
class DirectCublasLt {
 public:
  virtual ~DirectCublasLt() = default;

  // Internal with what the library says; Unimplemented in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<DirectCublasLt>> Open(const SymbolSource& symbols);

  // Asks for algorithms of the product; how many there are, at least 1, the library's first choice
  // first. Unimplemented where it has none.
  virtual absl::StatusOr<int> Choose(const DirectProduct& product) = 0;
  // Of any of them.
  virtual size_t workspace_bytes() const = 0;
  // Puts the product by algorithm `i` behind what is on the stream, a cudaStream_t. Addresses are
  // those of the device; the workspace is aligned to 256 bytes.
  virtual absl::Status Multiply(int i, const void* a, const void* b, void* y, void* workspace,
                                void* stream) = 0;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_DIRECT_CUBLASLT_H_
