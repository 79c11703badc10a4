// Convolution and transposed convolution by their definitions, for the types and ranks that oneDNN
// does not take.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_CONV_DIRECT_H_
#define WEFT_OPS_KERNELS_CPU_CONV_CONV_DIRECT_H_

#include <memory>
#include <vector>

#include "ops/kernel.h"
#include "ops/window.h"

namespace weft::cpu {

// Sizes of a convolution from the smaller image (Y of Conv, X of ConvTranspose) to the larger one.
struct DirectConv {
  int64_t batch = 0;
  int64_t group = 1;
  int64_t x_channels = 0;  // of input 0
  int64_t y_channels = 0;  // of output 0
  bool bias = false;       // input 2
  // Along the image axes: `input` is the size of Conv's X or ConvTranspose's Y.
  std::vector<WindowAxis> axes;
  int threads = 1;
};

// Inputs X, W[y_channels, x_channels / group, kernel...], B; float32 or float64 (the dtype of X).
absl::StatusOr<std::unique_ptr<Kernel>> MakeDirectConv(const PrepareContext& context,
                                                       const DirectConv& conv);
// Inputs X, W[x_channels, y_channels / group, kernel...], B.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDirectConvTranspose(const PrepareContext& context,
                                                                const DirectConv& conv);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_CONV_DIRECT_H_
