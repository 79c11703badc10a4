// Codes: elements of any quantized type, 2 bits to 32, as numbers and back.
#ifndef WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_CODES_H_
#define WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_CODES_H_

#include <array>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/small_float.h"

namespace weft::cpu {

// True for the types whose elements have at most 8 bits: they are read through tables.
inline bool HasCodeTable(DType dtype) { return DTypeBits(dtype) > 0 && DTypeBits(dtype) <= 8; }

// Reads elements as float. Covers the quantized types, float32, float16, bfloat16 and float8e8m0.
class CodeReader {
 public:
  explicit CodeReader(DType dtype);

  float At(const void* data, int64_t i) const;

 private:
  DType dtype_;
  int bits_;
  std::array<float, 256> table_ = {};  // of types up to 8 bits
};

// The least and the largest value of an integer type of at most 16 bits.
struct CodeRange {
  float low;
  float high;
};
CodeRange RangeOfCodes(DType dtype);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_CODES_H_
