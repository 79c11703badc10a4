// Bodies of FakeQuantizeWeight, FakeQuantize, FakeQuantizeGrad, RangeOfBatch and UpdateRange. They
// have the bits of the CPU's kernels: the formulas are ops/defs/quantized/fake_quantize.cc's.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_BODY_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/quantized/range_body.h"
#include "ops/kernels/cuda/quantized/scale_map.h"

namespace weft::cuda {

inline constexpr float kLargestFloat8 = 448;  // of float8e4m3fn
// Adding and taking away 1.5 * 2^23 times a power of 2 rounds to multiples of it, halves to even.
inline constexpr float kRounder = 12582912;

// REQUIRES: |x| < 2^22, or NaN.
WEFT_GPU float RoundToWhole(float x) { return RoundedSum(RoundedSum(x, kRounder), -kRounder); }

// The nearest float8e4m3fn, halves to even, cut at its largest number. What rounds to zero keeps
// its sign, but -0 becomes 0: a zero point of 0 is added to it.
WEFT_GPU float RoundToFloat8(float x) {
  if (!(std::fabs(x) < kLargestFloat8)) {
    return x != x ? x : std::copysign(kLargestFloat8, x);
  }
  // Three bits after the leading one; below 2^-6 steps are 2^-9.
  uint32_t exponent = (MagnitudeBits(x) >> 23) & 255u;
  if (exponent < 127 - 6) exponent = 127 - 6;
  const float rounder = kRounder * MagnitudeOf((exponent - 3) << 23);
  return std::copysign(RoundedSum(RoundedSum(x, rounder), -rounder), RoundedSum(x, 0.0f));
}

// A scale that is no normal number would round quotients out of the range of the codes.
WEFT_GPU float UsableScale(float scale) { return scale < 1.17549435e-38f ? 1.0f : scale; }

WEFT_GPU bool IsFiniteNumber(float x) { return x - x == 0; }

// ---- Weights.

// Lines of at most `length` elements at distance `inner`, of [outer, size, inner]: number (o, b, i)
// begins at [o, b length, i]. The largest magnitude of a line goes to scales, which begin at 0:
// to number (line % inner) / per_scale if that is not 0, else to its own.
struct LineMaximaBody {
  const float* w;
  uint32_t* scales;
  int64_t lines;
  int64_t size;
  int64_t inner;
  int64_t length;
  int64_t parts;  // lines along `size`
  int64_t per_scale;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(w);
    for (int64_t line = gpu.index(); line < lines; line += gpu.stride()) {
      const int64_t column = line % inner;
      const int64_t part = line / inner % parts;
      const int64_t begin = part * length;
      const int64_t count = size - begin < length ? size - begin : length;
      const int64_t first = (line / inner / parts * size + begin) * inner + column;
      uint32_t largest = 0;
      for (int64_t k = 0; k < count; ++k) {
        const float value = from[first + k * inner];
        largest = LargerBits()(largest, MagnitudeBits(value));
      }
      gpu.AtomicMax(gpu.Global(scales), per_scale == 0 ? line : column / per_scale, largest);
    }
  }
};

// The same of rows of neighbours, a warp for each piece of one; row r has scale r % scales.
struct RowMaximaBody {
  static constexpr int kPiece = 2048;

  const float* w;
  uint32_t* maxima;
  int64_t rows;
  int64_t length;
  int64_t pieces;  // of a row
  int64_t scales;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(w);
    const int64_t warps = gpu.stride() / kWarp;
    for (int64_t n = gpu.index() / kWarp; n < rows * pieces; n += warps) {
      const int64_t row = n / pieces;
      const int64_t begin = n % pieces * kPiece;
      const int64_t end = length - begin < kPiece ? length : begin + kPiece;
      uint32_t largest = 0;
      for (int64_t i = begin + gpu.lane(); i < end; i += kWarp) {
        const float value = from[row * length + i];
        largest = LargerBits()(largest, MagnitudeBits(value));
      }
      largest = WarpReduce(gpu, largest, LargerBits());
      if (gpu.lane() == 0) gpu.AtomicMax(gpu.Global(maxima), row % scales, largest);
    }
  }
};

// Maxima become scales.
struct FinishScalesBody {
  float* scales;
  int64_t count;
  float limit;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(scales);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const float largest = to[i];
      to[i] = UsableScale(largest / limit);
    }
  }
};

// No quotient is beyond the limit of whole numbers by more than a rounding error.
template <typename Index>
struct FakeWeightBody {
  const float* w;
  const float* scales;
  float* y;
  int64_t count;
  bool is_float8;
  ScaleMap<Index> map;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(w);
    const auto scale_of = gpu.Global(scales);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const float scale = scale_of[map.At(static_cast<Index>(i))];
      const float quotient = from[i] / scale;
      to[i] = (is_float8 ? RoundToFloat8(quotient) : RoundToWhole(quotient)) * scale;
    }
  }
};

// ---- Activations.

struct ActivationScale {
  bool is_known = false;
  float scale = 0;
  float zero = 0;
};

// `range`: [lowest, highest, weight].
template <class Gpu>
WEFT_GPU ActivationScale ScaleOfRange(Gpu& gpu, const float* range, bool is_float8) {
  const auto numbers = gpu.Global(range);
  ActivationScale result;
  const float weight = numbers[2];
  if (weight == 0) return result;
  result.is_known = true;
  const float min_value = numbers[0] / weight;
  const float low = min_value < 0 ? min_value : 0.0f;
  const float high = OrZero(numbers[1] / weight);
  if (is_float8) {
    result.scale = UsableScale((-low < high ? high : -low) / kLargestFloat8);
    return result;
  }
  result.scale = UsableScale((high - low) / 255.0f);
  const float zero = -low / result.scale;
  result.zero = std::nearbyint(255.0f < zero ? 255.0f : zero);
  return result;
}

struct FakeQuantizeBody {
  const float* x;
  const float* range;
  float* y;
  float* scale;       // null: not wanted
  float* zero_point;  // null: not wanted
  int64_t count;
  bool is_float8;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const ActivationScale found = ScaleOfRange(gpu, range, is_float8);
    if (gpu.index() == 0) {
      if (scale != nullptr) gpu.Global(scale)[0] = found.scale;
      if (zero_point != nullptr) gpu.Global(zero_point)[0] = found.zero;
    }
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const float value = from[i];
      // Codes would hide what is not finite from the loss.
      if (!found.is_known || !IsFiniteNumber(value)) {
        to[i] = value;
      } else if (is_float8) {
        to[i] = RoundToFloat8(value / found.scale) * found.scale;
      } else {
        const uint32_t code = Uint8Code(std::nearbyint(value / found.scale) + found.zero);
        to[i] = (static_cast<float>(code) - found.zero) * found.scale;
      }
    }
  }
};

struct FakeQuantizeGradBody {
  const float* dy;
  const float* x;
  const float* range;
  float* dx;
  int64_t count;
  bool is_float8;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const ActivationScale found = ScaleOfRange(gpu, range, is_float8);
    // Of rounded quotients; what lies beyond is cut. That of an end of the range itself may be
    // beyond the limit by a rounding error.
    constexpr float kLimit = kLargestFloat8 * (1 + 2 * 1.1920929e-7f);
    const float low = is_float8 ? -kLimit : -found.zero;
    const float high = is_float8 ? kLimit : 255.0f - found.zero;
    const auto slope = gpu.Global(dy);
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(dx);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const float value = from[i];
      const float own = slope[i];
      if (!found.is_known) {
        to[i] = own;
        continue;
      }
      float place = value / found.scale;
      place = place < 1024.0f ? place : 1024.0f;
      place = -1024.0f < place ? place : -1024.0f;
      if (!is_float8) place = RoundToWhole(place);
      const bool passes = (place >= low && place <= high) || !IsFiniteNumber(value);
      to[i] = passes ? own : 0.0f;
    }
  }
};

// ---- Ranges.

// y [rows, 2] is 0 but for `row`, which is the range over the micro-batches that share it.
struct BatchRangeBody {
  const uint32_t* range;  // ExtremesBody::range
  float* y;
  int64_t rows;
  int64_t row;
  float sharing;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto found = gpu.Global(range);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < 2 * rows; i += gpu.stride()) {
      float value = 0;
      if (i / 2 == row) {
        const float magnitude = MagnitudeOf(found[i % 2]);
        value = (magnitude == 0 || i % 2 == 1 ? magnitude : -magnitude) / sharing;
      }
      to[i] = value;
    }
  }
};

// y = decay range + (1 - decay) [lowest of the rows, highest, 1]; range where a row is not finite.
// One thread.
struct UpdateRangeBody {
  const float* range;
  const float* x;  // [rows, 2]
  float* y;
  int64_t rows;
  float decay;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (gpu.index() != 0) return;
    const auto old = gpu.Global(range);
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    float next[3] = {0, 0, 1};
    bool is_finite = true;
    for (int64_t i = 0; i < rows; ++i) {
      const float low = from[2 * i];
      const float high = from[2 * i + 1];
      is_finite = is_finite && IsFiniteNumber(low) && IsFiniteNumber(high);
      if (low < next[0]) next[0] = low;
      if (high > next[1]) next[1] = high;
    }
    for (int i = 0; i < 3; ++i) {
      const float before = old[i];
      const float kept = RoundedProduct(decay, before);
      to[i] = is_finite ? RoundedSum(kept, RoundedProduct(1 - decay, next[i])) : before;
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_FAKE_QUANTIZE_BODY_H_
