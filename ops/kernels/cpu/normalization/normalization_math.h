// Sums and combinations over contiguous elements that the normalizations are made of: vector code
// for float32, plain loops for other types.
#ifndef WEFT_OPS_KERNELS_CPU_NORMALIZATION_NORMALIZATION_MATH_H_
#define WEFT_OPS_KERNELS_CPU_NORMALIZATION_NORMALIZATION_MATH_H_

#include <cstdint>

#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {

// Sums of g = dy * scale and of g * xhat over a row, where xhat = (x - mean) * inverse; scale may
// be null (ones).
template <typename S>
struct GradientSums {
  S g = 0;
  S g_xhat = 0;
};

// Where a row's statistics went in: xhat = (x - mean) * inverse.
template <typename S>
struct Statistics {
  S mean = 0;
  S inverse = 0;  // 1 / sqrt(variance + epsilon)
};

float SumOf(const float* x, int64_t count);
float SumOfSquaredDeviations(const float* x, int64_t count, float mean);
// y = x * factor + addend.
void ScaleAndShift(const float* x, int64_t count, float factor, float addend, float* y);
// y = xhat * scale + bias; bias may be null.
void NormalizeRow(const float* x, int64_t count, Statistics<float> statistics, const float* scale,
                  const float* bias, float* y);
GradientSums<float> SumGradientRow(const float* dy, const float* x, int64_t count,
                                   Statistics<float> statistics, const float* scale);
// dx = inverse * (g - means.g - xhat * means.g_xhat).
void NormalizeGradientRow(const float* dy, const float* x, int64_t count,
                          Statistics<float> statistics, const float* scale,
                          GradientSums<float> means, float* dx);
// dscale += dy * xhat, dbias += dy; either may be null.
void AddParameterGradients(const float* dy, const float* x, int64_t count,
                           Statistics<float> statistics, float* dscale, float* dbias);
// dx = a * dy + b * x + c.
void CombineLinear(const float* dy, const float* x, int64_t count, float a, float b, float c,
                   float* dx);

template <typename T>
ComputeType<T> SumOf(const T* x, int64_t count) {
  ComputeType<T> sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += Load(x[i]);
  return sum;
}

template <typename T>
ComputeType<T> SumOfSquaredDeviations(const T* x, int64_t count, ComputeType<T> mean) {
  ComputeType<T> sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const ComputeType<T> deviation = Load(x[i]) - mean;
    sum += deviation * deviation;
  }
  return sum;
}

template <typename T>
void ScaleAndShift(const T* x, int64_t count, ComputeType<T> factor, ComputeType<T> addend, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Store<T>(Load(x[i]) * factor + addend);
}

template <typename T>
void NormalizeRow(const T* x, int64_t count, Statistics<ComputeType<T>> statistics, const T* scale,
                  const T* bias, T* y) {
  for (int64_t i = 0; i < count; ++i) {
    const ComputeType<T> xhat = (Load(x[i]) - statistics.mean) * statistics.inverse;
    y[i] = Store<T>(xhat * Load(scale[i]) +
                    (bias == nullptr ? ComputeType<T>(0) : ComputeType<T>(Load(bias[i]))));
  }
}

template <typename T>
GradientSums<ComputeType<T>> SumGradientRow(const T* dy, const T* x, int64_t count,
                                            Statistics<ComputeType<T>> statistics, const T* scale) {
  GradientSums<ComputeType<T>> sums;
  for (int64_t i = 0; i < count; ++i) {
    const ComputeType<T> g =
        Load(dy[i]) * (scale == nullptr ? ComputeType<T>(1) : ComputeType<T>(Load(scale[i])));
    sums.g += g;
    sums.g_xhat += g * ((Load(x[i]) - statistics.mean) * statistics.inverse);
  }
  return sums;
}

template <typename T>
void NormalizeGradientRow(const T* dy, const T* x, int64_t count,
                          Statistics<ComputeType<T>> statistics, const T* scale,
                          GradientSums<ComputeType<T>> means, T* dx) {
  for (int64_t i = 0; i < count; ++i) {
    const ComputeType<T> xhat = (Load(x[i]) - statistics.mean) * statistics.inverse;
    const ComputeType<T> g = Load(dy[i]) * Load(scale[i]);
    dx[i] = Store<T>(statistics.inverse * (g - means.g - xhat * means.g_xhat));
  }
}

template <typename T>
void AddParameterGradients(const T* dy, const T* x, int64_t count,
                           Statistics<ComputeType<T>> statistics, ComputeType<T>* dscale,
                           ComputeType<T>* dbias) {
  for (int64_t i = 0; i < count; ++i) {
    const ComputeType<T> g = Load(dy[i]);
    if (dbias != nullptr) dbias[i] += g;
    if (dscale != nullptr) dscale[i] += g * ((Load(x[i]) - statistics.mean) * statistics.inverse);
  }
}

template <typename T>
void CombineLinear(const T* dy, const T* x, int64_t count, ComputeType<T> a, ComputeType<T> b,
                   ComputeType<T> c, T* dx) {
  for (int64_t i = 0; i < count; ++i) dx[i] = Store<T>(a * Load(dy[i]) + b * Load(x[i]) + c);
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_NORMALIZATION_NORMALIZATION_MATH_H_
