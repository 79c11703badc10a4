// Convolutions as products of matrices with unfolded windows.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_PRODUCT_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_PRODUCT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/conv/conv_plan.h"

namespace weft::cuda {

// Pieces are of at most these sizes; tests make them small.
struct ConvLimits {
  int64_t column_bytes = kColumnBytes;
  int64_t partial_bytes = kPartialBytes;
};

// small = W * columns(large) (+ bias): inputs large image, W and, where has_bias, bias; one output.
absl::StatusOr<std::unique_ptr<Kernel>> MakeSmallProduct(const PrepareContext& context,
                                                         const ConvPlan& plan, bool has_bias,
                                                         const ConvLimits& limits = {});
// large = folded W^T * small (+ bias): inputs small image, W and, where has_bias, bias.
absl::StatusOr<std::unique_ptr<Kernel>> MakeLargeProduct(const PrepareContext& context,
                                                         const ConvPlan& plan, bool has_bias,
                                                         const ConvLimits& limits = {});
// W = sum over samples of small * columns(large)^T: inputs large image, small image; outputs W and,
// where has_bias, the sums of the small image's channels.
absl::StatusOr<std::unique_ptr<Kernel>> MakeWeightsProduct(const PrepareContext& context,
                                                           const ConvPlan& plan, bool has_bias,
                                                           const ConvLimits& limits = {});

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_PRODUCT_H_
