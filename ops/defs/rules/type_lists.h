// More lists of dtypes that signatures name; the common ones are in rules.h.
#ifndef WEFT_OPS_DEFS_RULES_TYPE_LISTS_H_
#define WEFT_OPS_DEFS_RULES_TYPE_LISTS_H_

#include <initializer_list>

#include "tensor/dtype.h"

namespace weft {

inline constexpr std::initializer_list<DType> kWholeTypes = {
    DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
    DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64};
// The 8-bit floats with a sign are numbers for tests such as IsNaN.
inline constexpr std::initializer_list<DType> kFloatAndFloat8Types = {
    DType::kFloat32,      DType::kFloat64,        DType::kFloat16,    DType::kBfloat16,
    DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz};
// What QuantizeLinear makes, and what DequantizeLinear reads beside int32.
inline constexpr std::initializer_list<DType> kQuantizedTypes = {
    DType::kInt8,         DType::kUint8,          DType::kInt16,      DType::kUint16,
    DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz,
    DType::kUint4,        DType::kInt4,           DType::kFloat4E2M1, DType::kUint2,
    DType::kInt2,         DType::kFloat6E2M3,     DType::kFloat6E3M2, DType::kInt32};
inline constexpr std::initializer_list<DType> kByteTypes = {DType::kInt8, DType::kUint8};

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_TYPE_LISTS_H_
