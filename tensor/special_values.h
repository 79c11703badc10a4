// Finds elements of floating tensors that no arithmetic should meet.
#ifndef WEFT_TENSOR_SPECIAL_VALUES_H_
#define WEFT_TENSOR_SPECIAL_VALUES_H_

#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace weft {

// The index of the first infinity or NaN; -1 without one, and for types that have none of both
// (integers, strings, 8-bit floats). The tensor must be on the host; it may be unaligned.
int64_t FindNonFinite(const Tensor& tensor);

// The same, and the type's lowest finite value too, which masks use for minus infinity.
int64_t FindNonFiniteOrLowest(const Tensor& tensor);

// "-inf", "nan", "-3.40282e+38". REQUIRES: a floating tensor of a real type, index in range.
std::string ElementText(const Tensor& tensor, int64_t index);

}  // namespace weft

#endif  // WEFT_TENSOR_SPECIAL_VALUES_H_
