// Normalizations of rows through cuDNN.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_DNN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cuda {

// Kernels for nodes whose x is `rows` rows of `columns` normalized elements. Null where the node
// does not use cuDNN, and where it cannot compute the node, which is logged with the reason: other
// types, no bias, a scale that is spread, no dX, no elements, or no plan. Such nodes go another
// way. Errors: those of DnnOf, with the node's name.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnLayerNormalization(const PrepareContext& context,
                                                                  int64_t rows, int64_t columns);
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnLayerNormalizationGrad(const PrepareContext& context,
                                                                      int64_t rows,
                                                                      int64_t columns);
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnRmsNormalization(const PrepareContext& context,
                                                                int64_t rows, int64_t columns);
// The inverses that the library wants are found by a launch of ours.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnRmsNormalizationGrad(const PrepareContext& context,
                                                                    int64_t rows, int64_t columns);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_DNN_H_
