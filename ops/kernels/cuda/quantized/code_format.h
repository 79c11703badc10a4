// Elements of quantized types, 2 bits to 32, as numbers and back, for bodies. The host makes these
// values (ops/kernels/cuda/quantized/code_format.cc).
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_CODE_FORMAT_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_CODE_FORMAT_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/scalar.h"
#include "tensor/dtype.h"

namespace weft::cuda {

inline constexpr int kMaxCodes = 256;

// The element of `bits` (1 to 8) number i, packed as tensor/packed.h says. Reads no byte that it is
// not in.
template <class Gpu>
WEFT_GPU uint32_t ReadPackedCode(Gpu& gpu, const void* data, int bits, int64_t i) {
  const auto bytes = gpu.Global(static_cast<const uint8_t*>(data));
  const int64_t position = i * bits;
  const int shift = static_cast<int>(position % 8);
  const uint8_t first = bytes[position / 8];
  uint32_t value = first;
  if (shift + bits > 8) {
    const uint8_t second = bytes[position / 8 + 1];
    value |= static_cast<uint32_t>(second) << 8;
  }
  return (value >> shift) & ((1u << bits) - 1);
}

// Reads elements as float: quantized types, and float32, float16, bfloat16.
struct CodeDecoder {
  DType dtype = DType::kUint8;
  int bits = 8;
  bool is_signed = false;
  bool has_table = false;  // floats of at most 8 bits
  float table[kMaxCodes] = {};

  template <class Gpu>
  WEFT_GPU float At(Gpu& gpu, const void* data, int64_t i) const {
    switch (dtype) {
      case DType::kFloat32: {
        const float value = gpu.Global(static_cast<const float*>(data))[i];
        return value;
      }
      case DType::kFloat16: {
        const Float16 value = gpu.Global(static_cast<const Float16*>(data))[i];
        return Widen(value);
      }
      case DType::kBfloat16: {
        const Bfloat16 value = gpu.Global(static_cast<const Bfloat16*>(data))[i];
        return Widen(value);
      }
      case DType::kInt16: {
        const int16_t value = gpu.Global(static_cast<const int16_t*>(data))[i];
        return static_cast<float>(value);
      }
      case DType::kUint16: {
        const uint16_t value = gpu.Global(static_cast<const uint16_t*>(data))[i];
        return static_cast<float>(value);
      }
      case DType::kInt32: {
        const int32_t value = gpu.Global(static_cast<const int32_t*>(data))[i];
        return static_cast<float>(value);
      }
      default:
        break;
    }
    const uint32_t code = ReadPackedCode(gpu, data, bits, i);
    if (has_table) return table[code];
    const int32_t value = static_cast<int32_t>(code);
    const bool is_negative = is_signed && (code >> (bits - 1)) != 0;
    return static_cast<float>(is_negative ? value - (1 << bits) : value);
  }
};

// Makes codes of numbers.
struct CodeEncoder {
  DType dtype = DType::kUint8;
  int bits = 8;
  // Of whole numbers.
  float low = 0;
  float high = 255;
  // Of floats of at most 8 bits: codes without their sign grow with the magnitude, of which
  // magnitudes[0 to max_code] are finite. Index 1: of negative numbers.
  bool is_float = false;
  uint32_t max_code = 0;
  float too_large = 0;  // from here on (or beyond, if max_code is even) numbers overflow
  uint32_t zero_code[2] = {};
  uint32_t nan_code[2] = {};
  uint32_t overflow_code[2] = {};
  float magnitudes[kMaxCodes / 2] = {};

  // Cut at the ends of the type; NaN becomes its lowest number. REQUIRES: not is_float.
  WEFT_GPU uint32_t OfWhole(float whole) const {
    const float number = !(whole >= low) ? low : whole > high ? high : whole;
    return static_cast<uint32_t>(static_cast<int32_t>(number));
  }

  // Rounded to nearest even. Real: float or double. REQUIRES: is_float.
  template <typename Real>
  WEFT_GPU uint32_t OfReal(Real value) const {
    const uint32_t sign = std::signbit(value) ? 1 : 0;
    if (value != value) return nan_code[sign];
    const Real magnitude = std::fabs(value);
    const Real limit = too_large;
    if (magnitude > limit || (magnitude == limit && max_code % 2 == 1)) {
      return overflow_code[sign];
    }
    uint32_t code = 0;  // the largest one that is not above
    for (uint32_t step = kMaxCodes / 4; step > 0; step /= 2) {
      if (code + step <= max_code && magnitudes[code + step] <= magnitude) code += step;
    }
    if (code < max_code) {
      const Real middle = (magnitudes[code] + magnitudes[code + 1]) * 0.5f;
      if (magnitude > middle || (magnitude == middle && code % 2 == 1)) ++code;
    }
    return code == 0 ? zero_code[sign] : (sign << (bits - 1)) | code;
  }
};

// A scale of any type that quantized operators allow: what CodeDecoder reads but tables, and
// float8e8m0, which is a power of two by its exponent.
template <class Gpu>
WEFT_GPU float ReadScale(Gpu& gpu, const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat16: {
      const Float16 value = gpu.Global(static_cast<const Float16*>(data))[i];
      return Widen(value);
    }
    case DType::kBfloat16: {
      const Bfloat16 value = gpu.Global(static_cast<const Bfloat16*>(data))[i];
      return Widen(value);
    }
    case DType::kInt32: {
      const int32_t value = gpu.Global(static_cast<const int32_t*>(data))[i];
      return static_cast<float>(value);
    }
    case DType::kFloat8E8M0: {
      const uint8_t code = gpu.Global(static_cast<const uint8_t*>(data))[i];
      // 2^-127 has no exponent of its own in float32; the code of all ones is NaN.
      const uint32_t pattern = code == 0     ? 0x00400000u
                               : code == 255 ? 0x7fc00000u
                                             : static_cast<uint32_t>(code) << 23;
      float value = 0;
      memcpy(&value, &pattern, sizeof(value));
      return value;
    }
    default: {
      const float value = gpu.Global(static_cast<const float*>(data))[i];
      return value;
    }
  }
}

// Made on the host. REQUIRES: types that the structures cover.
CodeDecoder MakeCodeDecoder(DType dtype);
// `saturate`: numbers beyond the largest become it, as CastOptions::saturate says.
CodeEncoder MakeCodeEncoder(DType dtype, bool saturate);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_CODE_FORMAT_H_
