#include "ops/kernels/cpu/quantized/quantize_codes.h"

#include "tensor/packed.h"

namespace weft::cpu {
namespace {

bool IsSigned(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 ||
         dtype == DType::kInt4 || dtype == DType::kInt2;
}

float ValueOfCode(DType dtype, uint32_t code) {
  if (IsSmallFloat(dtype)) return static_cast<float>(DecodeSmallFloat(dtype, code));
  const int bits = DTypeBits(dtype);
  const int32_t value = static_cast<int32_t>(code);
  const bool negative = IsSigned(dtype) && (code >> (bits - 1)) != 0;
  return static_cast<float>(negative ? value - (1 << bits) : value);
}

}  // namespace

CodeReader::CodeReader(DType dtype) : dtype_(dtype), bits_(DTypeBits(dtype)) {
  if (!HasCodeTable(dtype)) return;
  for (uint32_t code = 0; code < (1u << bits_); ++code) table_[code] = ValueOfCode(dtype, code);
}

float CodeReader::At(const void* data, int64_t i) const {
  switch (dtype_) {
    case DType::kFloat32:
      return static_cast<const float*>(data)[i];
    case DType::kFloat16:
      return ToFloat(static_cast<const Float16*>(data)[i]);
    case DType::kBfloat16:
      return ToFloat(static_cast<const Bfloat16*>(data)[i]);
    case DType::kInt16:
      return static_cast<const int16_t*>(data)[i];
    case DType::kUint16:
      return static_cast<const uint16_t*>(data)[i];
    case DType::kInt32:
      return static_cast<float>(static_cast<const int32_t*>(data)[i]);
    default:
      break;
  }
  return table_[PackedElement(data, bits_, i)];
}

CodeRange RangeOfCodes(DType dtype) {
  const int bits = DTypeBits(dtype);
  const float size = static_cast<float>(int64_t{1} << bits);
  if (IsSigned(dtype)) return {-size / 2, size / 2 - 1};
  return {0, size - 1};
}

}  // namespace weft::cpu
