// The body of products of floats of 8 bits.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_FLOAT8_PRODUCT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_FLOAT8_PRODUCT_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_output_body.h"

namespace weft::cuda {

// A thread computes one element of Y. A product of two float32 is exact in float64, so it does not
// matter that nvcc fuses it with the sum.
struct Float8ProductBody {
  ByteProduct of;
  Requantization codes;
  uint8_t* y;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    const int64_t count = of.matrices * of.m * of.n;
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const int64_t line = i / of.n;
      const int64_t column = i - line * of.n;
      const int64_t matrix = line / of.m;
      const int64_t row = line - matrix * of.m;
      const double sum = Sum(gpu, matrix, row, column);
      to[i] = static_cast<uint8_t>(RequantizedCode(gpu, codes, matrix, row, column, sum));
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU double Sum(Gpu& gpu, int64_t matrix, int64_t row, int64_t column) const {
    const auto a =
        gpu.Global(static_cast<const uint8_t*>(of.a)) + (of.a_matrix.Offset(matrix) + row * of.k);
    const auto b =
        gpu.Global(static_cast<const uint8_t*>(of.b)) + (of.b_matrix.Offset(matrix) + column);
    const float a_zero = of.a_zeros.At(gpu, matrix, row);
    const float b_zero = of.b_zeros.At(gpu, matrix, column);
    double sum = 0;
    for (int64_t l = 0; l < of.k; ++l) {
      const uint8_t left = a[l];
      const uint8_t right = b[l * of.n];
      sum += static_cast<double>(of.a_format.At(left) - a_zero) *
             static_cast<double>(of.b_format.At(right) - b_zero);
    }
    return sum;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_FLOAT8_PRODUCT_BODY_H_
