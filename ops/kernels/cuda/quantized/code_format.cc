#include "ops/kernels/cuda/quantized/code_format.h"

#include <cmath>
#include <limits>

#include "tensor/small_float.h"

namespace weft::cuda {
namespace {

bool IsSignedWhole(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 ||
         dtype == DType::kInt4 || dtype == DType::kInt2;
}

}  // namespace

CodeDecoder MakeCodeDecoder(DType dtype) {
  CodeDecoder reader;
  reader.dtype = dtype;
  reader.bits = DTypeBits(dtype);
  reader.is_signed = IsSignedWhole(dtype);
  reader.has_table = IsSmallFloat(dtype) && reader.bits <= 8;
  for (uint32_t code = 0; reader.has_table && code < (1u << reader.bits); ++code) {
    reader.table[code] = static_cast<float>(DecodeSmallFloat(dtype, code));
  }
  return reader;
}

CodeEncoder MakeCodeEncoder(DType dtype, bool saturate) {
  CodeEncoder writer;
  writer.dtype = dtype;
  writer.bits = DTypeBits(dtype);
  writer.is_float = IsSmallFloat(dtype);
  if (!writer.is_float) {
    const auto size = static_cast<float>(int64_t{1} << writer.bits);
    writer.low = IsSignedWhole(dtype) ? -size / 2 : 0;
    writer.high = writer.low + size - 1;
    return writer;
  }
  CastOptions options;
  options.saturate = saturate;
  for (uint32_t code = 0; code < (1u << (writer.bits - 1)); ++code) {
    const double magnitude = DecodeSmallFloat(dtype, code);
    if (!std::isfinite(magnitude)) break;
    writer.max_code = code;
    writer.magnitudes[code] = static_cast<float>(magnitude);
  }
  // Half a step beyond the largest number.
  const float largest = writer.magnitudes[writer.max_code];
  writer.too_large = largest + (largest - writer.magnitudes[writer.max_code - 1]) / 2;
  for (int negative = 0; negative < 2; ++negative) {
    const double sign = negative != 0 ? -1.0 : 1.0;
    const auto encode = [&](double value) {
      return EncodeSmallFloat(dtype, std::copysign(value, sign), options);
    };
    writer.zero_code[negative] = encode(0);
    writer.nan_code[negative] = encode(std::numeric_limits<double>::quiet_NaN());
    writer.overflow_code[negative] = encode(std::numeric_limits<double>::infinity());
  }
  return writer;
}

}  // namespace weft::cuda
