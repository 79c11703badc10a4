// Elements of any number type or bool, which is known at run time alone: one kernel for all of
// them, where models seldom ask for one.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_ANY_NUMBER_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_ANY_NUMBER_H_

#include <cstdint>

#include "ops/kernels/cuda/language/scalar.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// An element, exact in one of two forms.
struct AnyNumber {
  double real = 0;     // of a floating type
  uint64_t whole = 0;  // of any other: two's complement of 64 bits
  bool is_real = true;
  bool is_signed = false;
};

WEFT_GPU AnyNumber AnyOf(double value) { return {value, 0, true, false}; }

// fn(value), with `value` a double, int64_t or uint64_t.
template <typename Fn>
WEFT_GPU auto VisitNumber(const AnyNumber& number, Fn fn) {
  if (number.is_real) return fn(number.real);
  if (number.is_signed) return fn(static_cast<int64_t>(number.whole));
  return fn(number.whole);
}

// Rounded to nearest even.
WEFT_GPU double ToDouble(const AnyNumber& number) {
  if (number.is_real) return number.real;
  if (number.is_signed) return static_cast<double>(static_cast<int64_t>(number.whole));
  return static_cast<double>(number.whole);
}

// Element i of `data`, of a whole type or bool, in two's complement of 64 bits.
template <class Gpu>
WEFT_GPU uint64_t ReadWhole(Gpu& gpu, const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kInt8: {
      const int8_t value = gpu.Global(static_cast<const int8_t*>(data))[i];
      return static_cast<uint64_t>(value);
    }
    case DType::kInt16: {
      const int16_t value = gpu.Global(static_cast<const int16_t*>(data))[i];
      return static_cast<uint64_t>(value);
    }
    case DType::kInt32: {
      const int32_t value = gpu.Global(static_cast<const int32_t*>(data))[i];
      return static_cast<uint64_t>(value);
    }
    case DType::kBool:
    case DType::kUint8: {
      const uint8_t value = gpu.Global(static_cast<const uint8_t*>(data))[i];
      return value;
    }
    case DType::kUint16: {
      const uint16_t value = gpu.Global(static_cast<const uint16_t*>(data))[i];
      return value;
    }
    case DType::kUint32: {
      const uint32_t value = gpu.Global(static_cast<const uint32_t*>(data))[i];
      return value;
    }
    default:
      return gpu.Global(static_cast<const uint64_t*>(data))[i];
  }
}

// Element i of `data`, of a number type or bool.
template <class Gpu>
WEFT_GPU AnyNumber ReadAny(Gpu& gpu, const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat32: {
      const float value = gpu.Global(static_cast<const float*>(data))[i];
      return AnyOf(static_cast<double>(value));
    }
    case DType::kFloat64: {
      const double value = gpu.Global(static_cast<const double*>(data))[i];
      return AnyOf(value);
    }
    case DType::kFloat16: {
      const Float16 value = gpu.Global(static_cast<const Float16*>(data))[i];
      return AnyOf(static_cast<double>(Widen(value)));
    }
    case DType::kBfloat16: {
      const Bfloat16 value = gpu.Global(static_cast<const Bfloat16*>(data))[i];
      return AnyOf(static_cast<double>(Widen(value)));
    }
    default: {
      const bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt16 ||
                             dtype == DType::kInt32 || dtype == DType::kInt64;
      return {0, ReadWhole(gpu, data, dtype, i), false, is_signed};
    }
  }
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_ANY_NUMBER_H_
