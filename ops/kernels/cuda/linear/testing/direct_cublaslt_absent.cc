// DirectCublasLt of a build without CUDA.
#include "ops/kernels/cuda/linear/testing/direct_cublaslt.h"

namespace weft::testing {

absl::StatusOr<std::unique_ptr<DirectCublasLt>> DirectCublasLt::Open(
    const SymbolSource& /*symbols*/) {
  return absl::UnimplementedError("this build has no CUDA; build it with --config=cuda");
}

}  // namespace weft::testing
