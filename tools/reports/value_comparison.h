// Compares what ran with what was expected.
#ifndef WEFT_TOOLS_REPORTS_VALUE_COMPARISON_H_
#define WEFT_TOOLS_REPORTS_VALUE_COMPARISON_H_

#include <string>

#include "tensor/value.h"

namespace weft {

// |actual - expected| <= absolute + relative x |expected|, per element; NaN equals NaN, an infinity
// itself. Integers, booleans and strings must be equal. Of bfloat16 the relative part is at least
// 2^-6, two units in its last place, as in ONNX's own test runner (onnx 1.23,
// onnx/backend/test/runner).
struct Tolerance {
  double relative = 1e-3;
  double absolute = 1e-7;
};

// "" when both agree in kind, dtype, shape and elements; else what differs: the count of elements,
// the worst one with its index and both values. Tensors are on the host.
std::string DescribeDifference(const Value& actual, const Value& expected,
                               const Tolerance& tolerance);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_VALUE_COMPARISON_H_
