// The kernel of Attention, for its factory and tests.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_KERNEL_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_KERNEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cuda {

// Scores of a piece take at most so much of the workspace, if those of a query do.
inline constexpr int64_t kScoreBytes = int64_t{256} << 20;

// Unimplemented for operands that are not of one floating type of 16 bits or more. A length outside
// of the keys is a fault of the stream.
absl::StatusOr<std::unique_ptr<Kernel>> MakeAttention(const PrepareContext& context,
                                                      int64_t score_bytes);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_KERNEL_H_
