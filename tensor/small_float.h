// The floating types below 32 bits, by their formats: exact decoding to double, and encoding with
// one rounding. Slow and plainly right: kernels that need speed convert float16 and bfloat16 with
// ToFloat and ToFloat16 of dtype.h.
#ifndef WEFT_TENSOR_SMALL_FLOAT_H_
#define WEFT_TENSOR_SMALL_FLOAT_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// How a value that is not a power of two becomes one (float8e8m0 only); ONNX Cast's `round_mode`.
enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

// The choices that ONNX's Cast (opset 25) leaves to its attributes, with its defaults.
struct CastOptions {
  // Of 8-bit floats: values beyond the largest finite one become that one; otherwise infinity where
  // the type has it, NaN where it has not. 4- and 6-bit floats always saturate, 16-bit ones never.
  bool saturate = true;
  PowerRounding power_rounding = PowerRounding::kUp;
};

// True for float16, bfloat16, the float8 family, float6e2m3, float6e3m2 and float4e2m1.
bool IsSmallFloat(DType dtype);

// The value of the low DTypeBits(dtype) bits of `code`. Exact. REQUIRES: IsSmallFloat(dtype).
double DecodeSmallFloat(DType dtype, uint32_t code);

// `value` rounded to nearest even (float8e8m0: as the options say), by the tables of ONNX's Cast.
// NaN keeps its sign where the type has one; 4- and 6-bit floats have none and give -0; a negative
// float8e8m0, which ONNX leaves open, gives NaN. REQUIRES: IsSmallFloat(dtype).
uint32_t EncodeSmallFloat(DType dtype, double value, const CastOptions& options = {});

}  // namespace weft

#endif  // WEFT_TENSOR_SMALL_FLOAT_H_
