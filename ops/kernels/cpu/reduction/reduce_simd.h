// Sums of float32 that keep float32's accuracy over any length: short runs are added in float32
// lanes, the runs in double.
#ifndef WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_H_

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

// x[0] + ... + x[n-1]. The order of the additions depends on n and the instruction set alone.
double SumFloat(const float* x, size_t n);

// Columns that SumColumns handles at a time.
inline constexpr int64_t kColumnTile = 64;

// totals[c] += sum over r of x[r * stride + c], for c < columns <= kColumnTile.
void SumColumns(const float* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

// (a[0] - b[0])^2 + ... + (a[n-1] - b[n-1])^2
double SumOfSquaredDifferences(const float* a, const float* b, size_t n);

// |x[0]| + ... and x[0]^2 + ..., with the accuracy of SumFloat.
double SumOfMagnitudes(const float* x, size_t n);
double SumOfSquares(const float* x, size_t n);

// The largest and the smallest element; NaN if there is one; an infinity of no elements.
double MaxFloat(const float* x, size_t n);
double MinFloat(const float* x, size_t n);

void FillFloat(float value, float* out, size_t n);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_H_
