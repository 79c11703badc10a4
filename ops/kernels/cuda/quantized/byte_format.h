// Types of one byte as numbers, for bodies: int8, uint8 and the floats of 8 bits. Small enough that
// a body has several.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_FORMAT_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_FORMAT_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/gpu.h"
#include "tensor/dtype.h"

namespace weft::cuda {

enum class ByteKind : uint8_t { kUnsigned, kSigned, kFloat };

// How a byte is read. Of a float: mantissa bits, the bias of its exponent, and what its codes
// without a number are ("Float stored in 8 bits" of ONNX's technical details).
struct ByteFormat {
  ByteKind kind = ByteKind::kUnsigned;
  uint8_t mantissa_bits = 0;
  uint8_t bias = 0;
  bool is_finite = false;     // "fn": no infinity, and NaN is the largest code alone
  bool has_one_zero = false;  // "uz": the code of -0 is the one NaN

  // Exact.
  WEFT_GPU float At(uint8_t code) const {
    if (kind == ByteKind::kUnsigned) return static_cast<float>(code);
    if (kind == ByteKind::kSigned) return static_cast<float>(static_cast<int8_t>(code));
    const uint32_t magnitude = code & 0x7fu;
    const bool is_negative = code >= 0x80u;
    const uint32_t exponent = magnitude >> mantissa_bits;
    const uint32_t implied = 1u << mantissa_bits;
    const uint32_t mantissa = magnitude & (implied - 1);
    float value = 0;
    if (has_one_zero ? code == 0x80u : is_finite && magnitude == 0x7fu) {
      value = NAN;
    } else if (!has_one_zero && !is_finite && exponent == 0x7fu >> mantissa_bits) {
      value = mantissa == 0 ? INFINITY : NAN;
    } else {
      // Numbers without the implied bit have the exponent of the smallest with it.
      const uint32_t power = exponent == 0 ? 1 : exponent;
      const uint32_t pattern = (127u + power - bias - mantissa_bits) << 23;  // a power of two
      float step = 0;
      memcpy(&step, &pattern, sizeof(step));
      value = static_cast<float>(exponent == 0 ? mantissa : mantissa | implied) * step;
    }
    return is_negative ? -value : value;
  }
};

// REQUIRES: int8, uint8, or a float of 8 bits with a mantissa.
inline ByteFormat MakeByteFormat(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return {.kind = ByteKind::kSigned};
    case DType::kFloat8E4M3Fn:
      return {.kind = ByteKind::kFloat, .mantissa_bits = 3, .bias = 7, .is_finite = true};
    case DType::kFloat8E4M3Fnuz:
      return {.kind = ByteKind::kFloat,
              .mantissa_bits = 3,
              .bias = 8,
              .is_finite = true,
              .has_one_zero = true};
    case DType::kFloat8E5M2:
      return {.kind = ByteKind::kFloat, .mantissa_bits = 2, .bias = 15};
    case DType::kFloat8E5M2Fnuz:
      return {.kind = ByteKind::kFloat,
              .mantissa_bits = 2,
              .bias = 16,
              .is_finite = true,
              .has_one_zero = true};
    default:
      return {};
  }
}

// Where the scale or zero point of a line of a matrix is: one for all, one for each line, or one
// for each line of each matrix of a period.
struct LinePlace {
  int64_t line_step = 0;
  int64_t matrix_step = 0;
  int64_t period = 1;  // after so many matrices it begins anew

  WEFT_GPU int64_t At(int64_t matrix, int64_t line) const {
    return matrix % period * matrix_step + line * line_step;
  }
};

// Zero points of lines.
struct ByteLines {
  const void* data = nullptr;  // null: 0
  ByteFormat format;
  LinePlace place;

  template <class Gpu>
  WEFT_GPU float At(Gpu& gpu, int64_t matrix, int64_t line) const {
    if (data == nullptr) return 0;
    const uint8_t code = gpu.Global(static_cast<const uint8_t*>(data))[place.At(matrix, line)];
    return format.At(code);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_FORMAT_H_
