// Convolutions through cuDNN.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_DNN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/conv/conv_plan.h"
#include "ops/kernels/cuda/dnn/dnn.h"

namespace weft::cuda {

// A kernel that computes `result` of the plan through the device's cuDNN: operands 0 and 1 of the
// node are the two others, in the order large image, weights, small image (the small image first
// for kLargeImage). has_bias: input 2 is added to the channels of the image, or, for kWeights,
// output 1 gets the sums of the small image's channels. Null where the node does not use cuDNN, and
// where it cannot compute the plan: float64, no elements, windows that need other zeros behind the
// image than before it, or no algorithm (which is logged). Such nodes go another way. Errors: those
// of DnnOf, with the node's name.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnConv(const PrepareContext& context,
                                                    const ConvPlan& plan, ConvolutionResult result,
                                                    bool has_bias);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_DNN_H_
