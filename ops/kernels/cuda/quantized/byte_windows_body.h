// Bodies of convolutions of bytes: windows as the columns of a product, and convolutions by their
// definition.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_WINDOWS_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_WINDOWS_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/conv/conv_body.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_dot.h"
#include "ops/kernels/cuda/quantized/byte_output_body.h"
#include "ops/kernels/cuda/quantized/byte_product_body.h"

namespace weft::cuda {

// The first element of the window at a position; it may lie before the image.
WEFT_GPU ImagePlace WindowStart(const ConvWindow& window, int64_t position) {
  ImagePlace place = PlaceOf(position, window.small);
  WEFT_UNROLL
  for (int axis = 0; axis < kImageAxes; ++axis) {
    place.at[axis] = place.at[axis] * window.stride[axis] - window.pad[axis];
  }
  return place;
}

// B's columns as windows of an image.
struct WindowColumns {
  ByteWindows windows;

  struct Columns {
    ImagePlace starts[4];
    uint32_t outside;  // the code of the zero point
  };
  // Columns behind the last are the last.
  template <class Gpu>
  WEFT_GPU Columns Begin(Gpu& gpu, const ByteProduct& of, int64_t first) const {
    Columns columns;
    WEFT_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int64_t position = first + c < of.n ? first + c : of.n - 1;
      columns.starts[c] = WindowStart(windows.window, position);
    }
    columns.outside = 0;
    if (of.b_zeros.data != nullptr) {
      const uint8_t code = gpu.Global(static_cast<const uint8_t*>(of.b_zeros.data))[0];
      columns.outside = code;
    }
    return columns;
  }

  template <class Gpu, class Bytes>
  WEFT_GPU void Load(Gpu& /*gpu*/, const ByteProduct& of, const Bytes& image,
                     const Columns& columns, int64_t l, uint32_t flip, uint32_t (&words)[4]) const {
    const ConvWindow& w = windows.window;
    WEFT_UNROLL
    for (int c = 0; c < 4; ++c) words[c] = 0;
    WEFT_UNROLL
    for (int v = 0; v < 4; ++v) {
      if (l + v >= of.k) break;
      const Division<int32_t> channel = windows.taps.Divide(static_cast<int32_t>(l + v));
      const Division<int32_t> first = windows.plane.Divide(channel.rest);
      const Division<int32_t> second = windows.line.Divide(first.rest);
      const int32_t at0 = first.quotient * w.dilation[0];
      const int32_t at1 = second.quotient * w.dilation[1];
      const int32_t at2 = second.rest * w.dilation[2];
      const auto plane = image + channel.quotient * w.large_size();
      WEFT_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int32_t i0 = columns.starts[c].at[0] + at0;
        const int32_t i1 = columns.starts[c].at[1] + at1;
        const int32_t i2 = columns.starts[c].at[2] + at2;
        uint32_t code = columns.outside;
        if (IsInside(w, 0, i0) && IsInside(w, 1, i1) && IsInside(w, 2, i2)) {
          const uint8_t byte = plane[(i0 * w.large[1] + i1) * w.large[2] + i2];
          code = byte;
        }
        words[c] |= code << (8 * v);
      }
    }
    const uint32_t present = PresentMask(of.k - l);
    WEFT_UNROLL
    for (int c = 0; c < 4; ++c) words[c] = (words[c] ^ flip) & present;
  }
};

// A thread computes one element of Y.
template <class Output>
struct DirectByteConvBody {
  ByteProduct of;
  ByteWindows windows;
  Output output;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = of.matrices * of.m * of.n;
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const int64_t plane = i / of.n;
      const int64_t position = i - plane * of.n;
      const int64_t matrix = plane / of.m;
      const int64_t row = plane - matrix * of.m;
      uint32_t sums[kOutputsAtOnce] = {};
      sums[0] = Sum(gpu, matrix, row, position);
      output.Write(gpu, matrix, row, position, 1, sums);
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU uint32_t Sum(Gpu& gpu, int64_t matrix, int64_t row, int64_t position) const {
    const ConvWindow& w = windows.window;
    auto filter =
        gpu.Global(static_cast<const uint8_t*>(of.a)) + (of.a_matrix.Offset(matrix) + row * of.k);
    auto image = gpu.Global(static_cast<const uint8_t*>(of.b)) + of.b_matrix.Offset(matrix);
    const uint32_t filter_zero = FlippedZero(gpu, of.a_format, of.a_zeros, matrix, row);
    const uint32_t image_zero = FlippedZero(gpu, of.b_format, of.b_zeros, matrix, position);
    const auto filter_flip = static_cast<uint8_t>(FlipOf(of.a_format));
    const auto image_flip = static_cast<uint8_t>(FlipOf(of.b_format));
    const ImagePlace start = WindowStart(w, position);
    uint32_t sum = 0;
    for (int64_t channel = of.k / w.taps(); channel > 0; --channel) {
      for (int32_t t0 = 0; t0 < w.kernel[0]; ++t0) {
        const int32_t i0 = start.at[0] + t0 * w.dilation[0];
        for (int32_t t1 = 0; t1 < w.kernel[1]; ++t1, filter += w.kernel[2]) {
          const int32_t i1 = start.at[1] + t1 * w.dilation[1];
          if (!IsInside(w, 0, i0) || !IsInside(w, 1, i1)) continue;
          const int32_t line = (i0 * w.large[1] + i1) * w.large[2];
          for (int32_t t2 = 0; t2 < w.kernel[2]; ++t2) {
            const int32_t i2 = start.at[2] + t2 * w.dilation[2];
            if (!IsInside(w, 2, i2)) continue;
            const uint8_t value = image[line + i2];
            const uint8_t factor = filter[t2];
            const auto left = static_cast<int8_t>(value ^ image_flip);
            const auto right = static_cast<int8_t>(factor ^ filter_flip);
            sum += (static_cast<uint32_t>(left) - image_zero) *
                   (static_cast<uint32_t>(right) - filter_zero);
          }
        }
      }
      image += w.large_size();
    }
    return sum;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_WINDOWS_BODY_H_
