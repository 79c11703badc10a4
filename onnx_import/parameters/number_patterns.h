// Tensors whose numbers say by themselves that nobody trains them: masks, tables, ramps.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_NUMBER_PATTERNS_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_NUMBER_PATTERNS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace weft {

// All of the following take tensors of a real floating type on the host; they say no to others, and
// to those without elements. They read in pieces, and stop at the first number that does not fit.
// What lies in mapped files does not stay in memory.

// Whether each number fits.
bool EveryNumber(const Tensor& tensor, const std::function<bool(double)>& fits);

// The number that all elements are.
std::optional<double> CommonNumber(const Tensor& tensor);

// Lengths of the axes that are longer than 1.
std::vector<int64_t> LongAxes(const Shape& shape);

// What is added to scores to hide some of them: 0 and numbers of -1e4 or less, or 0 and one number
// of -50 or less (shifted windows have -100). At least one hides.
bool IsScoreMask(const Tensor& tensor);

// 0 and 1, both of them.
bool IsBinary(const Tensor& tensor);

// Whole numbers from 0 to 1023, not all alike: numbers of regions.
bool AreRegionNumbers(const Tensor& tensor);

// With one long axis: a, a r, a r^2, ...; 4 or more positive numbers, r not 1. Slopes of ALiBi
// (Press et al. 2021, arXiv:2108.12409), frequencies of rotary embeddings.
bool IsGeometric(const Tensor& tensor);
// With one long axis: 8 or more positive numbers that fall or rise all along; what is left of such
// frequencies where some of them are stretched.
bool IsPositiveAndMonotonic(const Tensor& tensor);
// With one long axis: 4 or more whole numbers at equal distances (positions).
bool IsCountingUp(const Tensor& tensor);

// Whether most of 256 numbers of it, at equal distances, differ from each other, as those that were
// drawn do.
bool AreMostlyDistinct(const Tensor& tensor);

// Whether the last long axis, or the first, has one entry for each of the other two or three, and
// each entry depends on one of these axes alone, another one each, along which it rises or falls.
// All of them have 3 numbers and more. So are coordinates of pixels and windows; no weight that was
// drawn is. For tensors of up to a million elements.
bool IsCoordinateGrid(const Tensor& tensor);

// Whether each column along one of the axes is cos or sin of a linear ramp, s cos(w i + p), and one
// of them turns: tables of rotary embeddings (Su et al. 2021, arXiv:2104.09864) and of sinusoidal
// positions (Vaswani et al. 2017, arXiv:1706.03762, section 3.5). Such a column satisfies
// v[i+1] + v[i-1] = 2 cos(w) v[i]; w is fitted, and some 64 positions of some 256 columns are
// looked at. Needs 5 positions and 2 columns.
bool IsSinusoidTable(const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_NUMBER_PATTERNS_H_
