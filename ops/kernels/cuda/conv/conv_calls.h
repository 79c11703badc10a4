// What convolutions launch besides products of matrices.
//
// A convolution goes from a large image [samples, groups * large channels, ...] to a small one
// [samples, groups * small channels, ...]; its weights are [groups * small channels, large
// channels, taps...]. Columns are the windows unfolded: [samples, groups, large channels * taps,
// positions].
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_CALLS_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Image axes; those that are missing come first and have size 1.
inline constexpr int kImageAxes = 3;

// Sizes and windows along the image axes: tap t of position o is element o * stride - pad + t *
// dilation of the large image. An image, and a window, has less than 2^31 elements.
struct ConvWindow {
  int32_t large[kImageAxes] = {1, 1, 1};
  int32_t small[kImageAxes] = {1, 1, 1};
  int32_t kernel[kImageAxes] = {1, 1, 1};
  int32_t stride[kImageAxes] = {1, 1, 1};
  int32_t dilation[kImageAxes] = {1, 1, 1};
  int32_t pad[kImageAxes] = {0, 0, 0};
  // The taps that hit an element of the large image are tap_step apart, and the positions that they
  // hit it from position_step: stride / gcd(stride, dilation), dilation / gcd(stride, dilation).
  int32_t tap_step[kImageAxes] = {1, 1, 1};
  int32_t position_step[kImageAxes] = {1, 1, 1};

  WEFT_GPU int64_t large_size() const { return int64_t{large[0]} * large[1] * large[2]; }
  WEFT_GPU int64_t small_size() const { return int64_t{small[0]} * small[1] * small[2]; }
  WEFT_GPU int64_t taps() const { return int64_t{kernel[0]} * kernel[1] * kernel[2]; }
};

// `columns` of `samples` images from `image` on: of each group the channels from first_channel, and
// of each image the positions from first_position. Floating types.
struct Unfold {
  const void* image = nullptr;
  void* columns = nullptr;
  ConvWindow window;
  int64_t samples = 0;
  int64_t groups = 1;
  int64_t group_channels = 0;  // large channels of a group
  int64_t first_channel = 0;
  int64_t channels = 0;
  int64_t first_position = 0;
  int64_t positions = 0;
};
int LaunchUnfold(LaunchQueue queue, DType dtype, const Unfold& unfold);

// The large image from columns of all positions: each element is the sum of the columns' elements
// that were unfolded from it, and of its channel's bias. Columns are float64 for float64 images,
// else float32.
struct Fold {
  const void* columns = nullptr;
  const void* bias = nullptr;  // null: none
  void* image = nullptr;
  ConvWindow window;
  int64_t samples = 0;
  int64_t groups = 1;
  int64_t group_channels = 0;
  int64_t first_channel = 0;
  int64_t channels = 0;
};
int LaunchFold(LaunchQueue queue, DType dtype, const Fold& fold);

// image[i] = bias of its channel, or 0 without: `channels` planes of `plane` elements in turns.
struct FillChannels {
  const void* bias = nullptr;
  void* image = nullptr;
  int64_t count = 0;
  int64_t channels = 1;
  int64_t plane = 1;
};
int LaunchFillChannels(LaunchQueue queue, DType dtype, const FillChannels& fill);

// sums[i] = partial sums s * count + i for all s, added in float64. Partial sums are float64 for
// float64, else float32.
struct AddPartials {
  const void* partials = nullptr;
  void* sums = nullptr;
  int64_t count = 0;
  int64_t parts = 0;
};
int LaunchAddPartials(LaunchQueue queue, DType dtype, const AddPartials& add);

// sums[c] = sum over samples and positions of the small image's channel c. `scratch` holds channels
// * parts float64: each part of a channel is a block's.
struct SumChannels {
  const void* image = nullptr;
  void* scratch = nullptr;
  void* sums = nullptr;
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  int64_t parts = 1;
};
int LaunchSumChannels(LaunchQueue queue, DType dtype, const SumChannels& sum);

// A convolution by its definition, for groups with few channels, which a product of matrices would
// compute badly. Operands that a launch writes are written whole.
struct DirectConv {
  void* large_image = nullptr;
  void* weights = nullptr;
  void* small_image = nullptr;
  const void* bias = nullptr;  // of the image that is written; null: none
  ConvWindow window;
  int64_t samples = 0;
  int64_t groups = 1;
  int64_t large_channels = 0;  // of a group
  int64_t small_channels = 0;
};
int LaunchDirectSmall(LaunchQueue queue, DType dtype, const DirectConv& conv);
int LaunchDirectLarge(LaunchQueue queue, DType dtype, const DirectConv& conv);
int LaunchDirectWeights(LaunchQueue queue, DType dtype, const DirectConv& conv);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_CALLS_H_
