// Normalizations through cuDNN: what those of rows and those of batches share.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZATION_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZATION_DNN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// A kernel of one normalization of the library. What the library writes and the node does not want
// lies in the workspace.
class DnnNormalizationKernel : public Kernel {
 public:
  // What the node itself has an operand for.
  struct Owned {
    bool mean = false;
    bool inverse = false;
    bool dscale = false;
    bool dbias = false;
  };

  DnnNormalizationKernel(const NormalizationSpec& spec, const Owned& owned);

  // To be called once, first. Unimplemented where the library has no plan.
  absl::Status Prepare(Dnn& library);

  size_t workspace_bytes() const override { return layout_.total(); }
  absl::Status Run(const KernelContext& run) override;

 protected:
  // The operands that the node has; others are null.
  virtual NormalizationOperands OperandsOf(const KernelContext& run) const = 0;
  // Goes before the library's work, and behind it, with all operands in place.
  virtual absl::Status Before(const KernelContext& /*run*/,
                              const NormalizationOperands& /*operands*/) {
    return absl::OkStatus();
  }
  virtual absl::Status After(const KernelContext& /*run*/,
                             const NormalizationOperands& /*operands*/) {
    return absl::OkStatus();
  }

  // Pieces of the workspace that such launches want.
  WorkspaceLayout layout_;

 private:
  const NormalizationSpec spec_;
  std::unique_ptr<PreparedNormalization> work_;
  // Of the pieces that are not owned.
  size_t mean_ = 0, inverse_ = 0, dscale_ = 0, dbias_ = 0;
  size_t library_ = 0;
};

// The library for a node that uses it. Null where the node does not use cuDNN, or `beyond` is not
// "": that is logged, and the node goes another way. Errors: those of DnnOf, with the node's name.
absl::StatusOr<Dnn*> DnnForNormalization(const PrepareContext& context, const std::string& beyond);

// The kernel, prepared; null where the library has no plan, which is logged.
absl::StatusOr<std::unique_ptr<Kernel>> PreparedOrNull(
    const PrepareContext& context, Dnn& library, std::unique_ptr<DnnNormalizationKernel> kernel);

// "operands of float64" for types that cuDNN is not asked for; else "".
std::string BeyondDnnTypes(DType dtype);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZATION_DNN_H_
