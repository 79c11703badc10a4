// Walks the windows of convolutions and pools, any number of image axes.
#ifndef WEFT_OPS_KERNELS_REFERENCE_WINDOW_WALK_H_
#define WEFT_OPS_KERNELS_REFERENCE_WINDOW_WALK_H_

#include <cstdint>
#include <vector>

#include "ops/window.h"

namespace weft::cpu {

// Calls fn(output, input, tap) for each output of a plane and each element (tap) of its window, all
// row-major positions; input is -1 in the padding and -2 beyond it.
template <typename Fn>
void WalkWindows(const std::vector<WindowAxis>& axes, Fn fn) {
  int64_t outputs = 1;
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) {
    outputs *= axis.output;
    taps *= axis.kernel;
  }
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t rest_of_output = output;
      int64_t rest_of_tap = tap;
      int64_t input = 0;
      int64_t stride = 1;
      for (size_t i = axes.size(); i-- > 0;) {
        const WindowAxis& axis = axes[i];
        const int64_t position = rest_of_output % axis.output * axis.stride - axis.pad_begin +
                                 rest_of_tap % axis.kernel * axis.dilation;
        rest_of_output /= axis.output;
        rest_of_tap /= axis.kernel;
        if (position >= axis.input + axis.pad_end) {
          input = -2;
        } else if ((position < 0 || position >= axis.input) && input != -2) {
          input = -1;
        } else if (input >= 0) {
          input += position * stride;
        }
        stride *= axis.input;
      }
      fn(output, input, tap);
    }
  }
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_REFERENCE_WINDOW_WALK_H_
