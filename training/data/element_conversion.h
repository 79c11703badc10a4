// Elements of data files in the type that a graph input wants.
#ifndef WEFT_TRAINING_DATA_ELEMENT_CONVERSION_H_
#define WEFT_TRAINING_DATA_ELEMENT_CONVERSION_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// Converts `count` elements; neither side need be aligned. `scale`: divides by 255, in the target's
// type (in float32 for 16-bit ones).
using ConvertElements = void (*)(const void* from, void* to, int64_t count, bool scale);

// Null when a conversion would not keep the meaning (a float where an index is wanted).
ConvertElements FindConversion(DType from, DType to);

// The number of the first of `count` integers that the target type cannot hold; -1 when there is
// none.
using FindOutOfRange = int64_t (*)(const void* values, int64_t count);

// Null when every value fits, or one of the types is no integer.
FindOutOfRange FindRangeCheck(DType from, DType to);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_ELEMENT_CONVERSION_H_
