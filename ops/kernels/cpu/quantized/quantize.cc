// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: per tensor, per axis and blocked, for
// all types. Between float32 and 8 bits vectorized.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/quantized/quantize_codes.h"
#include "ops/kernels/cpu/quantized/quantize_simd.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

// A run of neighbouring elements and their scales: one for all, or one each.
struct ScaleRun {
  int64_t first = 0;
  int64_t count = 0;
  int64_t scale = 0;
  int64_t scale_step = 0;
};

// How the scales lie over the elements [outer, size, inner] of which `size` is the axis'.
class ScaleGrid {
 public:
  static absl::StatusOr<ScaleGrid> Make(const PrepareContext& context) {
    const Shape& x = context.InputShape(0);
    ScaleGrid grid;
    grid.scales_ = context.InputShape(1).num_elements();
    if (grid.scales_ == 1) {
      grid.inner_ = x.num_elements();
      return grid;
    }
    WEFT_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(context.attributes().Int("axis", 1), x.rank()));
    grid.outer_ = x.ProductOf(0, axis);
    grid.size_ = x.dim(axis);
    grid.inner_ = x.ProductOf(axis + 1, x.rank());
    grid.block_ = context.attributes().Int("block_size", 0);
    if (grid.block_ > 0) {
      grid.blocks_ = grid.size_ / grid.block_ + (grid.size_ % grid.block_ != 0 ? 1 : 0);
    }
    const int64_t expected =
        grid.block_ > 0 ? grid.outer_ * grid.blocks_ * grid.inner_ : grid.size_;
    if (grid.scales_ != expected) {
      return context.InvalidArgument(
          absl::StrCat("there are ", grid.scales_, " scales, expected ", expected, " or 1"));
    }
    return grid;
  }

  int64_t scales() const { return scales_; }
  int64_t elements() const { return outer_ * size_ * inner_; }

  // Calls fn(run) for all elements, on up to `threads` threads.
  template <typename Fn>
  void ForEachRun(int threads, double nanoseconds, Fn fn) const {
    if (scales_ == 1) {
      ParallelFor(threads, inner_, nanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
        fn(ScaleRun{begin, end - begin, 0, 0});
      });
      return;
    }
    const int64_t rows = inner_ > 1 ? outer_ * size_ : block_ > 0 ? outer_ * blocks_ : outer_;
    const double length =
        static_cast<double>(elements()) / static_cast<double>(std::max<int64_t>(rows, 1));
    ParallelFor(threads, rows, 5 + nanoseconds * length, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) fn(RunOf(row));
    });
  }

 private:
  ScaleRun RunOf(int64_t row) const {
    if (inner_ > 1) {
      const int64_t o = row / size_;
      const int64_t d = row % size_;
      if (block_ == 0) return {row * inner_, inner_, d, 0};
      return {row * inner_, inner_, (o * blocks_ + d / block_) * inner_, 1};
    }
    if (block_ == 0) return {row * size_, size_, 0, 1};
    const int64_t start = row % blocks_ * block_;
    return {row / blocks_ * size_ + start, std::min(block_, size_ - start), row, 0};
  }

  int64_t outer_ = 1;
  int64_t size_ = 1;
  int64_t inner_ = 1;
  int64_t block_ = 0;
  int64_t blocks_ = 1;
  int64_t scales_ = 1;
};

// Scales and zero points as floats in the workspace.
class ScaleTable {
 public:
  ScaleTable(const PrepareContext& context, int64_t count, WorkspaceLayout& layout)
      : scale_reader_(context.InputDType(1)),
        zero_reader_(context.HasInput(2) ? context.InputDType(2) : DType::kUint8),
        has_zero_(context.HasInput(2)),
        count_(count),
        scales_(layout.Add(count * sizeof(float))),
        zeros_(layout.Add(count * sizeof(float))) {}

  void Fill(const KernelContext& run) const {
    float* scales = static_cast<float*>(At(run.workspace, scales_));
    float* zeros = static_cast<float*>(At(run.workspace, zeros_));
    for (int64_t i = 0; i < count_; ++i) {
      scales[i] = scale_reader_.At(run.inputs[1], i);
      zeros[i] = has_zero_ ? zero_reader_.At(run.inputs[2], i) : 0;
    }
  }
  const float* scales(void* workspace) const {
    return static_cast<const float*>(At(workspace, scales_));
  }
  const float* zeros(void* workspace) const {
    return static_cast<const float*>(At(workspace, zeros_));
  }

 private:
  CodeReader scale_reader_;
  CodeReader zero_reader_;
  bool has_zero_;
  int64_t count_;
  size_t scales_;
  size_t zeros_;
};

// ---- DequantizeLinear.

// Neighbours with a scale each.
void DequantizeBytes(const int8_t* x, const float* scales, const float* zeros, float* out,
                     int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (static_cast<float>(x[i]) - zeros[i]) * scales[i];
  }
}

// The same for int4, from element `first` of `x` on; with step 0 one scale is that of all.
template <int kStep>
void DequantizeNibbles(const int8_t* x, int64_t first, const float* scales, const float* zeros,
                       float* out, int64_t n) {
  const auto one = [&](int64_t i) {
    const int8_t pair = x[(first + i) / 2];
    const int code = (first + i) % 2 == 0 ? static_cast<int8_t>(pair << 4) >> 4 : pair >> 4;
    out[i] = (static_cast<float>(code) - zeros[i * kStep]) * scales[i * kStep];
  };
  const int64_t begin = std::min(n, first % 2);
  const int64_t pairs = (n - begin) / 2;
  if (begin == 1) one(0);
  const int8_t* const from = x + (first + begin) / 2;
#pragma omp simd
  for (int64_t j = 0; j < pairs; ++j) {
    const int64_t i = begin + 2 * j;
    const auto low = static_cast<float>(static_cast<int8_t>(from[j] << 4) >> 4);
    const auto high = static_cast<float>(from[j] >> 4);
    out[i] = (low - zeros[i * kStep]) * scales[i * kStep];
    out[i + 1] = (high - zeros[(i + 1) * kStep]) * scales[(i + 1) * kStep];
  }
  if (begin + 2 * pairs < n) one(n - 1);
}

// True if the run was of int8 or int4 and is done.
bool DequantizeWeights(const KernelContext& run, DType from, const ScaleRun& r, const float* scales,
                       const float* zeros, float* out) {
  const auto* const x = static_cast<const int8_t*>(run.inputs[0]);
  if (from == DType::kInt4) {
    const auto fill = r.scale_step == 0 ? DequantizeNibbles<0> : DequantizeNibbles<1>;
    fill(x, r.first, scales + r.scale, zeros + r.scale, out + r.first, r.count);
    return true;
  }
  if (from != DType::kInt8 || r.scale_step == 0) return false;
  DequantizeBytes(x + r.first, scales + r.scale, zeros + r.scale, out + r.first, r.count);
  return true;
}

template <typename R>
absl::StatusOr<std::unique_ptr<Kernel>> MakeDequantize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ScaleGrid grid, ScaleGrid::Make(context));
  WorkspaceLayout layout;
  const ScaleTable table(context, grid.scales(), layout);
  const DType from = context.InputDType(0);
  const CodeReader reader(from);
  const int threads = context.threads();
  return MakeKernel(
      [=](const KernelContext& run) {
        if (grid.elements() == 0) return absl::OkStatus();
        table.Fill(run);
        const float* scales = table.scales(run.workspace);
        const float* zeros = table.zeros(run.workspace);
        R* out = Output<R>(run, 0);
        grid.ForEachRun(threads, 0.5, [&](const ScaleRun& r) {
          if constexpr (std::is_same_v<R, float>) {
            if (r.scale_step == 0 && from == DType::kUint8) {
              return DequantizeToFloat(Input<uint8_t>(run, 0) + r.first, scales[r.scale],
                                       zeros[r.scale], out + r.first, r.count);
            }
            if (r.scale_step == 0 && from == DType::kInt8) {
              return DequantizeToFloat(Input<int8_t>(run, 0) + r.first, scales[r.scale],
                                       zeros[r.scale], out + r.first, r.count);
            }
            if (DequantizeWeights(run, from, r, scales, zeros, out)) return;
          }
          for (int64_t i = 0; i < r.count; ++i) {
            const int64_t s = r.scale + i * r.scale_step;
            const float x = reader.At(run.inputs[0], r.first + i);
            out[r.first + i] = Store<R>((x - zeros[s]) * scales[s]);
          }
        });
        return absl::OkStatus();
      },
      layout.total());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDequantize(const PrepareContext& context) {
  return PrepareByDType(context, context.OutputDType(0), TypeList<float, Float16, Bfloat16>(),
                        [&](auto zero) { return MakeDequantize<decltype(zero)>(context); });
}
WEFT_REGISTER_KERNEL("", "DequantizeLinear", DeviceKind::kCpu, PrepareDequantize);

// ---- QuantizeLinear.

// x / scale, in the precision of a type.
float Divide(DType precision, float x, float scale) {
  switch (precision) {
    case DType::kFloat16:
      return ToFloat(ToFloat16(ToFloat(ToFloat16(x)) / ToFloat(ToFloat16(scale))));
    case DType::kBfloat16:
      return ToFloat(ToBfloat16(ToFloat(ToBfloat16(x)) / ToFloat(ToBfloat16(scale))));
    default:
      return x / scale;
  }
}

// One element of any type but float32 to 8 bits: its code.
class Encoder {
 public:
  explicit Encoder(const PrepareContext& context)
      : dtype_(context.OutputDType(0)), range_(RangeOfCodes(dtype_)) {
    options_.saturate = context.attributes().Int("saturate", 1) != 0;
    const int64_t precision = context.attributes().Int("precision", 0);
    precision_ = precision != 0 ? static_cast<DType>(precision) : context.InputDType(1);
  }

  uint32_t Code(float x, float scale, float zero) const {
    const float quotient = Divide(precision_, x, scale);
    if (IsSmallFloat(dtype_)) return EncodeSmallFloat(dtype_, quotient + zero, options_);
    const float whole = std::nearbyint(quotient) + zero;
    const float number = !(whole >= range_.low) ? range_.low
                         : whole > range_.high  ? range_.high
                                                : whole;
    return static_cast<uint32_t>(static_cast<int32_t>(number));
  }

  DType dtype() const { return dtype_; }

 private:
  DType dtype_;
  DType precision_;
  CodeRange range_;
  CastOptions options_;
};

void StoreCode(void* out, int bits, int64_t i, uint32_t code) {
  if (bits == 16) {
    static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(code);
  } else if (bits == 8) {
    static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(code);
  } else {
    SetPackedElement(out, bits, i, code);
  }
}

// True if the run was of float32 to 8 bits and is done.
bool QuantizeVector(const KernelContext& run, DType to, const ScaleRun& r, float scale,
                    float zero) {
  if (r.scale_step != 0) return false;
  const float* x = Input<float>(run, 0) + r.first;
  if (to == DType::kUint8) {
    QuantizeFloat(x, scale, zero, Output<uint8_t>(run, 0) + r.first, r.count);
  } else if (to == DType::kInt8) {
    QuantizeFloat(x, scale, zero, Output<int8_t>(run, 0) + r.first, r.count);
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareQuantize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ScaleGrid grid, ScaleGrid::Make(context));
  const DType to = context.OutputDType(0);
  if (to == DType::kInt32) return context.Unimplemented("no quantization to int32");
  WorkspaceLayout layout;
  const ScaleTable table(context, grid.scales(), layout);
  const CodeReader reader(context.InputDType(0));
  const Encoder encoder(context);
  const int bits = DTypeBits(to);
  const bool vector = context.InputDType(0) == DType::kFloat32 &&
                      context.InputDType(1) == DType::kFloat32 &&
                      context.attributes().Int("precision", 0) <= 1;
  // Neighbouring packed elements share bytes.
  const int threads = bits < 8 ? 1 : context.threads();
  return MakeKernel(
      [=](const KernelContext& run) {
        if (grid.elements() == 0) return absl::OkStatus();
        table.Fill(run);
        const float* scales = table.scales(run.workspace);
        const float* zeros = table.zeros(run.workspace);
        if (bits < 8) std::memset(run.outputs[0], 0, DTypeBytes(to, grid.elements()));
        grid.ForEachRun(threads, 0.5, [&](const ScaleRun& r) {
          if (vector && QuantizeVector(run, to, r, scales[r.scale], zeros[r.scale])) return;
          for (int64_t i = 0; i < r.count; ++i) {
            const int64_t s = r.scale + i * r.scale_step;
            const float x = reader.At(run.inputs[0], r.first + i);
            StoreCode(run.outputs[0], bits, r.first + i, encoder.Code(x, scales[s], zeros[s]));
          }
        });
        return absl::OkStatus();
      },
      layout.total());
}
WEFT_REGISTER_KERNEL("", "QuantizeLinear", DeviceKind::kCpu, PrepareQuantize);

// ---- DynamicQuantizeLinear: the range of the data and 0 becomes that of uint8.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDynamicQuantize(const PrepareContext& context) {
  const int64_t elements = context.InputShape(0).num_elements();
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    const float* x = Input<float>(run, 0);
    const float low = std::min(0.0f, static_cast<float>(MinFloat(x, elements)));
    const float high = std::max(0.0f, static_cast<float>(MaxFloat(x, elements)));
    const float scale = (high == low ? 1.0f : high - low) / 255.0f;
    const float ratio = -low / scale;  // NaN where the data is infinite
    const float zero = ratio >= 0 ? std::nearbyint(std::min(ratio, 255.0f)) : 0.0f;
    *Output<float>(run, 1) = scale;
    *Output<uint8_t>(run, 2) = static_cast<uint8_t>(zero);
    uint8_t* out = Output<uint8_t>(run, 0);
    ParallelFor(threads, elements, 0.5, kElementGrain, [&](int64_t begin, int64_t end) {
      QuantizeFloat(x + begin, scale, zero, out + begin, end - begin);
    });
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL("", "DynamicQuantizeLinear", DeviceKind::kCpu, PrepareDynamicQuantize);

}  // namespace
}  // namespace weft::cpu
