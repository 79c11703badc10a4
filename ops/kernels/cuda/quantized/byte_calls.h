// Launches of products of bytes: ops/kernels/cuda/quantized/byte_matmul.cu, byte_conv.cu,
// float8_product.cu.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_CALLS_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/axis_index.h"
#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/quantized/byte_format.h"
#include "ops/kernels/cuda/quantized/code_format.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Matrices Y = (A - its zero points) (B - its), [m, k] [k, n]. A's rows are dense, and B's where
// they are no windows. Y's matrices follow one another.
struct ByteProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  ByteFormat a_format;
  ByteFormat b_format;
  ByteLines a_zeros;  // of rows
  ByteLines b_zeros;  // of columns
  int64_t matrices = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // Of matrix i: where its operands begin, in elements.
  AxisIndex a_matrix;
  AxisIndex b_matrix;
};

// Codes of Y from its sums: y = sum * (a's scale * b's scale / y's scale) + zero point, rounded and
// cut to Y's type. The factor is rounded to the type of the scales after each operation.
struct Requantization {
  const void* a_scales = nullptr;
  const void* b_scales = nullptr;
  const void* y_scales = nullptr;
  const int32_t* bias = nullptr;  // of rows, added to the sums; null: none
  DType scale_dtype = DType::kFloat32;
  bool rounds_first = false;  // before the zero point is added, not after it
  LinePlace a_place;          // of rows
  LinePlace b_place;          // of columns
  LinePlace y_place;          // of rows
  LinePlace bias_place;
  ByteLines zeros;  // of rows
  CodeEncoder writer;
};

// What becomes of sums.
struct ByteOutput {
  void* y = nullptr;  // int32, or codes
  bool is_codes = false;
  Requantization codes = {};
};

// B's columns are windows of an image: element (l, j) is tap l of the window at position j, over
// channels and taps; outside of the image lies the zero point. A has the filters.
struct ByteWindows {
  ConvWindow window;
  FastDivisor<int32_t> taps;   // of a channel
  FastDivisor<int32_t> plane;  // taps behind one of the first axis
  FastDivisor<int32_t> line;
};

// Sums modulo 2^32. Neither operand is a float. Each launch returns 0 or CUDA's error number.
int LaunchByteProduct(LaunchQueue queue, const ByteProduct& product, const ByteOutput& output);
int LaunchByteConv(LaunchQueue queue, const ByteProduct& product, const ByteWindows& windows,
                   const ByteOutput& output);
// The same by its definition, for few filters and taps.
int LaunchDirectByteConv(LaunchQueue queue, const ByteProduct& product, const ByteWindows& windows,
                         const ByteOutput& output);
// Of any formats; sums in float64, in order.
int LaunchFloat8Product(LaunchQueue queue, const ByteProduct& product, const Requantization& codes,
                        void* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_CALLS_H_
