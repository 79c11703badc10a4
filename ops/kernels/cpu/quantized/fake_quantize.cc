// FakeQuantizeWeight, FakeQuantize, FakeQuantizeGrad, RangeOfBatch, UpdateRange. Values have the
// bits that QuantizeLinear and DequantizeLinear give.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/quantized/quantize_simd.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr float kFloat8Limit = 448;
constexpr double kFakeNanoseconds = 2;
constexpr int64_t kChunk = 1024;

DType CodesOf(const PrepareContext& context) {
  return static_cast<DType>(context.attributes().Int("to", 0));
}

absl::Status CheckIsFloat32(const PrepareContext& context) {
  if (context.InputDType(0) == DType::kFloat32) return absl::OkStatus();
  return context.Unimplemented("only float32 is quantized");
}

// Adding and taking away 1.5 * 2^23 times a power of 2 rounds to multiples of it, halves to even.
constexpr float kRounder = 12582912;

// The nearest whole number, halves to even. REQUIRES: |x| < 2^22, or NaN.
inline float RoundWhole(float x) { return (x + kRounder) - kRounder; }

// As std::isfinite, for vectors.
inline bool IsFinite(float x) { return x - x == 0; }

// The nearest float8e4m3fn, halves to even, cut at its largest number. What rounds to zero keeps
// its sign, but -0 becomes 0: a zero point of 0 is added to it.
inline float RoundFloat8(float x) {
  if (!(std::fabs(x) < kFloat8Limit)) {
    return std::isnan(x) ? x : std::copysign(kFloat8Limit, x);
  }
  // Three bits after the leading one; below 2^-6 steps are 2^-9.
  const uint32_t exponent = std::max<uint32_t>(std::bit_cast<uint32_t>(x) >> 23 & 255, 127 - 6);
  const float rounder = kRounder * std::bit_cast<float>((exponent - 3) << 23);
  return std::copysign((x + rounder) - rounder, x + 0.0f);
}

// A scale that is no normal number would round quotients out of the range of the codes.
inline float Usable(float scale) {
  return scale < std::numeric_limits<float>::min() ? 1.0f : scale;
}

// ---- Weights.

// How scales lie over a weight [outer, size, inner], of which `size` is the axis'.
struct WeightGrid {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
  int64_t block = 1;  // along `size`
  int64_t blocks = 1;
  bool shared_by_outer = true;  // scales are [size], not [outer, blocks, inner]
  int64_t scales = 1;

  int64_t ScaleOf(int64_t o, int64_t d, int64_t i) const {
    return shared_by_outer ? d / block : (o * blocks + d / block) * inner + i;
  }
};

absl::StatusOr<WeightGrid> WeightGridOf(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  WeightGrid grid;
  if (!context.attributes().Has("axis")) {
    grid.inner = shape.num_elements();
    return grid;
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), shape.rank()));
  grid.outer = shape.ProductOf(0, axis);
  grid.size = shape.dim(axis);
  grid.inner = shape.ProductOf(axis + 1, shape.rank());
  const int64_t block = context.attributes().Int("block_size", 0);
  grid.shared_by_outer = block == 0;
  grid.block = block > 0 ? block : 1;
  grid.blocks = (grid.size + grid.block - 1) / grid.block;
  grid.scales = block > 0 ? grid.outer * grid.blocks * grid.inner : grid.size;
  return grid;
}

float LimitOf(DType codes) {
  return codes == DType::kInt8 ? 127.0f : codes == DType::kInt4 ? 7.0f : kFloat8Limit;
}

// scales[s] = the largest magnitude of its elements / limit; NaN where one is NaN.
void FindWeightScales(const WeightGrid& grid, const float* w, float limit, float* scales) {
  std::fill(scales, scales + grid.scales, 0.0f);
  const auto widen = [](float& largest, float x) {
    const float magnitude = std::fabs(x);
    if (!(magnitude <= largest)) largest = std::isnan(largest) ? largest : magnitude;
  };
  for (int64_t o = 0; o < grid.outer; ++o) {
    for (int64_t d = 0; d < grid.size; ++d) {
      const float* const row = w + (o * grid.size + d) * grid.inner;
      float* const own = scales + grid.ScaleOf(o, d, 0);
      const int64_t step = grid.shared_by_outer ? 0 : 1;
      for (int64_t i = 0; i < grid.inner; ++i) widen(own[i * step], row[i]);
    }
  }
  for (int64_t s = 0; s < grid.scales; ++s) {
    scales[s] = Usable(scales[s] / limit);
  }
}

template <typename Round>
void FakeWeights(const WeightGrid& grid, const float* w, const float* scales, int threads, float* y,
                 Round round) {
  const double nanoseconds = kFakeNanoseconds * static_cast<double>(grid.inner);
  const int64_t step = grid.shared_by_outer ? 0 : 1;
  if (grid.outer * grid.size == 1) {  // one scale for all
    return ParallelFor(threads, grid.inner, kFakeNanoseconds, kElementGrain,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) y[i] = round(w[i], scales[i * step]);
                       });
  }
  ParallelFor(
      threads, grid.outer * grid.size, nanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const float* const own = scales + grid.ScaleOf(row / grid.size, row % grid.size, 0);
          const int64_t first = row * grid.inner;
          for (int64_t i = 0; i < grid.inner; ++i) {
            y[first + i] = round(w[first + i], own[i * step]);
          }
        }
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantizeWeight(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  WEFT_ASSIGN_OR_RETURN(const WeightGrid grid, WeightGridOf(context));
  const DType codes = CodesOf(context);
  const bool wants_scale = context.HasOutput(1);
  const int threads = context.threads();
  const bool is_empty = context.InputShape(0).num_elements() == 0;
  return MakeKernel(
      [=](const KernelContext& run) {
        float* const scales =
            wants_scale ? Output<float>(run, 1) : static_cast<float*>(run.workspace);
        const float* const w = Input<float>(run, 0);
        if (grid.scales > 0) FindWeightScales(grid, w, LimitOf(codes), scales);
        if (is_empty) return absl::OkStatus();
        float* const y = Output<float>(run, 0);
        if (codes == DType::kFloat8E4M3Fn) {
          FakeWeights(grid, w, scales, threads, y,
                      [](float x, float scale) { return RoundFloat8(x / scale) * scale; });
        } else {
          // No quotient is beyond the limit by more than a rounding error.
          FakeWeights(grid, w, scales, threads, y,
                      [](float x, float scale) { return RoundWhole(x / scale) * scale; });
        }
        return absl::OkStatus();
      },
      wants_scale ? 0 : static_cast<size_t>(grid.scales) * sizeof(float));
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantizeWeight", DeviceKind::kCpu,
                     PrepareFakeQuantizeWeight);

// ---- Activations.

struct ActivationScale {
  bool is_known = false;
  float scale = 0;
  float zero = 0;
};

ActivationScale ScaleOfRange(DType codes, const float* range) {
  ActivationScale result;
  if (range[2] == 0) return result;
  result.is_known = true;
  const float low = std::min(0.0f, range[0] / range[2]);
  const float high = std::max(0.0f, range[1] / range[2]);
  if (codes == DType::kFloat8E4M3Fn) {
    result.scale = Usable(std::max(-low, high) / kFloat8Limit);
    return result;
  }
  result.scale = Usable((high - low) / 255.0f);
  result.zero = std::nearbyint(std::min(-low / result.scale, 255.0f));
  return result;
}

void FakeUint8(const float* x, const ActivationScale& scale, float* y, int64_t count) {
  uint8_t codes[kChunk];
  for (int64_t first = 0; first < count; first += kChunk) {
    const auto n = static_cast<size_t>(std::min(kChunk, count - first));
    QuantizeFloat(x + first, scale.scale, scale.zero, codes, n);
    DequantizeToFloat(codes, scale.scale, scale.zero, y + first, n);
    // Codes would hide what is not finite from the loss, and so from who watches steps.
#pragma omp simd
    for (size_t i = 0; i < n; ++i) {
      y[first + i] = IsFinite(x[first + i]) ? y[first + i] : x[first + i];
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantize(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  const DType codes = CodesOf(context);
  const int64_t count = context.InputShape(0).num_elements();
  const int threads = context.threads();
  const bool wants_scale = context.HasOutput(1);
  const bool wants_zero = context.HasOutput(2);
  return MakeKernel([=](const KernelContext& run) {
    const ActivationScale scale = ScaleOfRange(codes, Input<float>(run, 1));
    if (wants_scale) *Output<float>(run, 1) = scale.scale;
    if (wants_zero) *Output<float>(run, 2) = scale.zero;
    const float* const x = Input<float>(run, 0);
    float* const y = Output<float>(run, 0);
    ParallelFor(threads, count, kFakeNanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
      if (!scale.is_known) {
        std::copy(x + begin, x + end, y + begin);
      } else if (codes == DType::kUint8) {
        FakeUint8(x + begin, scale, y + begin, end - begin);
      } else {
        for (int64_t i = begin; i < end; ++i) {
          y[i] = IsFinite(x[i]) ? RoundFloat8(x[i] / scale.scale) * scale.scale : x[i];
        }
      }
    });
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantize", DeviceKind::kCpu, PrepareFakeQuantize);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFakeQuantizeGrad(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckIsFloat32(context));
  const DType codes = CodesOf(context);
  const int64_t count = context.InputShape(0).num_elements();
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    const ActivationScale scale = ScaleOfRange(codes, Input<float>(run, 2));
    const float* const dy = Input<float>(run, 0);
    const float* const x = Input<float>(run, 1);
    float* const dx = Output<float>(run, 0);
    const bool is_float8 = codes == DType::kFloat8E4M3Fn;
    // Of rounded quotients; what lies beyond is cut. That of an end of the range itself may be
    // beyond the limit by a rounding error.
    const float limit = kFloat8Limit * (1 + 2 * std::numeric_limits<float>::epsilon());
    const float low = is_float8 ? -limit : -scale.zero;
    const float high = is_float8 ? limit : 255.0f - scale.zero;
    ParallelFor(threads, count, kFakeNanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
      if (!scale.is_known) {
        std::copy(dy + begin, dy + end, dx + begin);
        return;
      }
      for (int64_t i = begin; i < end; ++i) {
        float place = std::max(-1024.0f, std::min(1024.0f, x[i] / scale.scale));
        if (!is_float8) place = RoundWhole(place);
        const bool passes = (place >= low && place <= high) || !IsFinite(x[i]);
        dx[i] = passes ? dy[i] : 0.0f;
      }
    });
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "FakeQuantizeGrad", DeviceKind::kCpu, PrepareFakeQuantizeGrad);

// ---- Ranges.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRangeOfBatch(const PrepareContext& context) {
  const auto count = static_cast<size_t>(context.InputShape(0).num_elements());
  const int64_t rows = context.OutputShape(0).dim(0);
  return MakeKernel([=](const KernelContext& run) {
    const float* const x = Input<float>(run, 0);
    float* const y = Output<float>(run, 0);
    std::fill(y, y + 2 * rows, 0.0f);
    if (count == 0) return absl::OkStatus();
    // Micro-batches [first, last) share the row.
    const int64_t all = run.micro_batches;
    const int64_t row = all <= rows ? run.micro_batch : run.micro_batch * rows / all;
    const int64_t first = all <= rows ? row : (row * all + rows - 1) / rows;
    const int64_t last = all <= rows ? row + 1 : ((row + 1) * all + rows - 1) / rows;
    const auto sharing = static_cast<float>(last - first);
    const auto low = static_cast<float>(MinFloat(x, count));
    const auto high = static_cast<float>(MaxFloat(x, count));
    y[2 * row] = (low > 0 ? 0.0f : low) / sharing;  // NaN passes
    y[2 * row + 1] = (high < 0 ? 0.0f : high) / sharing;
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "RangeOfBatch", DeviceKind::kCpu, PrepareRangeOfBatch);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareUpdateRange(const PrepareContext& context) {
  const float decay = context.attributes().Float("decay", 0.0f);
  const int64_t rows = context.InputShape(1).dim(0);
  return MakeKernel([=](const KernelContext& run) {
    const float* const range = Input<float>(run, 0);
    const float* const x = Input<float>(run, 1);
    float next[3] = {0, 0, 1};
    bool is_finite = true;
    for (int64_t i = 0; i < rows; ++i) {
      is_finite = is_finite && std::isfinite(x[2 * i]) && std::isfinite(x[2 * i + 1]);
      next[0] = std::min(next[0], x[2 * i]);
      next[1] = std::max(next[1], x[2 * i + 1]);
    }
    float* const y = Output<float>(run, 0);
    for (int i = 0; i < 3; ++i) {
      y[i] = is_finite ? decay * range[i] + (1 - decay) * next[i] : range[i];
    }
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "UpdateRange", DeviceKind::kCpu, PrepareUpdateRange);

}  // namespace
}  // namespace weft::cpu
