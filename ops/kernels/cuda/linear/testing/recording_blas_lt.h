// RecordingBlasLt: matrix products on the emulated GPU, for tests of what calls cuBLASLt.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_RECORDING_BLAS_LT_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_RECORDING_BLAS_LT_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "platform/mutex.h"

namespace weft::testing {

// Computes each product from its definition, on the stream and in the memory of the emulator, which
// checks every access. What the real library asks of its arguments is checked first: sizes and
// strides (CheckProduct), addresses as aligned as was said, results apart from operands, a
// workspace where one is wanted, a stream. A broken rule is an error of Multiply. It writes over
// all of the workspace, so that a workspace that is too small, or used twice at once, is seen.
// Linking it makes it the library of every device. Thread-safe; lives for ever.
class RecordingBlasLt final : public cuda::BlasLt {
 public:
  struct Call {
    cuda::MatrixProductSpec spec;
    cuda::ProductOperands operands;
  };

  static RecordingBlasLt& Get();

  absl::StatusOr<std::unique_ptr<cuda::PreparedProduct>> Prepare(
      const cuda::MatrixProductSpec& spec) override;

  // The calls of Multiply since the last TakeCalls.
  std::vector<Call> TakeCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  // Prepare refuses products with a bias from now on, or no longer.
  void RefuseBias(bool refuses) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of products with an epilogue (ProductEpilogue).
  void RefuseEpilogues(bool refuses) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class RecordedProduct;

  void Record(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
  bool refuses_bias_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_epilogues_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_TESTING_RECORDING_BLAS_LT_H_
