// Softmax and its like on float32, vectorized for the instruction set of the machine at hand.
#ifndef WEFT_OPS_KERNELS_CPU_NORMALIZATION_SOFTMAX_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_NORMALIZATION_SOFTMAX_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// Softmax, its logarithm, and their gradients.
enum class SoftmaxOp : uint8_t {
  kSoftmax,         // (x)
  kLogSoftmax,      // (x)
  kSoftmaxGrad,     // (dy, y)
  kLogSoftmaxGrad,  // (dy, y)
};

// `rows` rows of `size` contiguous elements. `b` is null for the forward ops. `out` may be `a`.
void SoftmaxRows(SoftmaxOp op, const float* a, const float* b, float* out, int64_t rows,
                 int64_t size);

// Columns of `size` elements that are `stride` apart: `columns` of them, side by side.
void SoftmaxColumns(SoftmaxOp op, const float* a, const float* b, float* out, int64_t columns,
                    int64_t size, int64_t stride);

// The largest element (of none: -infinity), and the sum over the row of e^(x - largest).
struct LogSumExpParts {
  float largest;
  double sum;
};
LogSumExpParts LogSumExpOfRow(const float* x, int64_t size);

// The same for columns of `size` elements that are `stride` apart.
void LogSumExpOfColumns(const float* x, int64_t columns, int64_t size, int64_t stride,
                        float* largest, float* sums);

// out[i] = scale * e^(x[i] - shift)
void ScaledExpOfRow(const float* x, float shift, float scale, float* out, int64_t size);

// The same for columns, each with its shift and scale.
void ScaledExpOfColumns(const float* x, const float* shifts, const float* scales, float* out,
                        int64_t columns, int64_t size, int64_t stride);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_NORMALIZATION_SOFTMAX_SIMD_H_
