// RandomUniform(Like), RandomNormal(Like), Bernoulli, Multinomial, Dropout and DropoutGrad.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/random/random_draws.h"
#include "tensor/small_float.h"

namespace weft::cpu {

namespace {

constexpr int64_t kPiece = 256;

// ---- Tensors of random numbers.

using FillFn = void (*)(const RandomKey& key, uint64_t first, float a, float b,
                        std::span<float> values);

void Uniform(const RandomKey& key, uint64_t first, float low, float high, std::span<float> values) {
  FillUniform(key, first, 0.0f, 1.0f, values);
  for (float& value : values) value = low + value * (high - low);
}

KernelFactory Random(FillFn fill, std::string first_name, float first_default,
                     std::string second_name, float second_default) {
  return [=](const PrepareContext& context) {
    const float a = context.attributes().Float(first_name, first_default);
    const float b = context.attributes().Float(second_name, second_default);
    const RandomKey key = KeyOfNode(context);
    const Shape shape = context.OutputShape(0);
    const OperandSlice slice = context.OutputSlice(0);
    return PrepareByDType(
        context, context.OutputDType(0), FloatTypes(),
        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          using T = decltype(zero);
          return MakeStepKernel([=](const KernelContext& run) {
            T* out = Output<T>(run, 0);
            const RandomKey step = key.Fold(static_cast<uint64_t>(run.step));
            std::array<float, kPiece> numbers;
            ForEachGlobalRun(run, shape, slice, kPiece, [&](int64_t to, int64_t at, int64_t count) {
              fill(step, static_cast<uint64_t>(at), a, b, std::span(numbers.data(), count));
              for (int64_t i = 0; i < count; ++i) {
                out[to + i] = Store<T>(static_cast<ComputeType<T>>(numbers[i]));
              }
            });
            return absl::OkStatus();
          });
        });
  };
}

WEFT_REGISTER_KERNEL("", "RandomUniform", DeviceKind::kCpu, Random(Uniform, "low", 0, "high", 1));
WEFT_REGISTER_KERNEL("", "RandomUniformLike", DeviceKind::kCpu,
                     Random(Uniform, "low", 0, "high", 1));
WEFT_REGISTER_KERNEL("", "RandomNormal", DeviceKind::kCpu,
                     Random(FillNormal, "mean", 0, "scale", 1));
WEFT_REGISTER_KERNEL("", "RandomNormalLike", DeviceKind::kCpu,
                     Random(FillNormal, "mean", 0, "scale", 1));

// ---- Draws.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBernoulli(const PrepareContext& context) {
  const RandomKey key = KeyOfNode(context);
  const Shape shape = context.OutputShape(0);
  const OperandSlice slice = context.OutputSlice(0);
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto from) {
    using T = decltype(from);
    return PrepareByDType(
        context, context.OutputDType(0), RealTypes(),
        [&](auto to) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          using R = decltype(to);
          return MakeStepKernel([=](const KernelContext& run) {
            const T* p = Input<T>(run, 0);
            R* out = Output<R>(run, 0);
            const RandomKey step = key.Fold(static_cast<uint64_t>(run.step));
            std::array<float, kPiece> numbers;
            ForEachGlobalRun(run, shape, slice, kPiece, [&](int64_t at, int64_t place, int64_t n) {
              FillUniform(step, static_cast<uint64_t>(place), 0, 1, std::span(numbers.data(), n));
              for (int64_t i = 0; i < n; ++i) {
                const bool one = numbers[i] < Load(p[at + i]);
                out[at + i] = Store<R>(static_cast<ComputeType<R>>(one ? 1 : 0));
              }
            });
            return absl::OkStatus();
          });
        });
  });
}
WEFT_REGISTER_KERNEL("", "Bernoulli", DeviceKind::kCpu, PrepareBernoulli);

// The class whose part of [0, 1), in proportion to e^logit, holds `number`.
template <typename T>
int64_t DrawClass(const T* logits, int64_t classes, double number) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < classes; ++c) {
    largest = std::max(largest, static_cast<double>(Load(logits[c])));
  }
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) total += std::exp(Load(logits[c]) - largest);
  double rest = number * total;
  for (int64_t c = 0; c < classes; ++c) {
    rest -= std::exp(Load(logits[c]) - largest);
    if (rest < 0) return c;
  }
  return classes - 1;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMultinomial(const PrepareContext& context) {
  const RandomKey key = KeyOfNode(context);
  const Shape output = context.OutputShape(0);
  const int64_t classes = context.InputShape(0).dim(1);
  if (classes == 0 && output.num_elements() > 0) {
    return context.InvalidArgument("there are no classes to draw from");
  }
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto from) {
    using T = decltype(from);
    return PrepareByDType(context, context.OutputDType(0), IndexTypes(),
                          [&](auto to) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using R = decltype(to);
                            return MakeStepKernel([=](const KernelContext& run) {
                              const T* logits = Input<T>(run, 0);
                              R* out = Output<R>(run, 0);
                              const RandomKey step = key.Fold(static_cast<uint64_t>(run.step));
                              const int64_t first = FirstPlace(run, output);
                              for (int64_t i = 0; i < output.num_elements(); ++i) {
                                float number;
                                FillUniform(step, static_cast<uint64_t>(first + i), 0, 1,
                                            std::span(&number, 1));
                                const T* row = logits + i / output.dim(1) * classes;
                                out[i] = static_cast<R>(DrawClass(row, classes, number));
                              }
                              return absl::OkStatus();
                            });
                          });
  });
}
WEFT_REGISTER_KERNEL("", "Multinomial", DeviceKind::kCpu, PrepareMultinomial);

// ---- Dropout.

// A scalar of any floating type.
double ReadScalar(DType dtype, const void* data) {
  switch (dtype) {
    case DType::kFloat32:
      return *static_cast<const float*>(data);
    case DType::kFloat64:
      return *static_cast<const double*>(data);
    case DType::kFloat16:
      return ToFloat(*static_cast<const Float16*>(data));
    case DType::kBfloat16:
      return ToFloat(*static_cast<const Bfloat16*>(data));
    default:
      return DecodeSmallFloat(dtype, *static_cast<const uint8_t*>(data));
  }
}

// What the operands `ratio` and `training_mode`, from input `first` on, say in a run.
class DropoutMode {
 public:
  DropoutMode(const PrepareContext& context, int first)
      : first_(first),
        has_ratio_(context.HasInput(first)),
        has_training_(context.HasInput(first + 1)),
        has_mask_(context.HasOutput(1)),
        ratio_dtype_(context.InputDType(first)) {}

  // Where the mask goes; null when it is not wanted.
  bool* MaskOf(const KernelContext& run) const {
    return has_mask_ ? Output<bool>(run, 1) : nullptr;
  }

  // The share of elements that are dropped. InvalidArgument outside of [0, 1).
  absl::StatusOr<double> RatioOf(const KernelContext& run) const {
    if (!has_training_ || !*Input<bool>(run, first_ + 1)) return 0;
    const double ratio = has_ratio_ ? ReadScalar(ratio_dtype_, run.inputs[first_]) : 0.5;
    if (ratio >= 0 && ratio < 1) return ratio;
    return absl::InvalidArgumentError(
        absl::StrCat("the ratio of Dropout is ", ratio, ", expected a value in [0, 1)"));
  }

 private:
  int first_;
  bool has_ratio_;
  bool has_training_;
  bool has_mask_;
  DType ratio_dtype_;
};

// out = mask ? x / (1 - ratio) : 0
template <typename T>
void ScaleKept(const T* x, const bool* mask, double ratio, int64_t count, T* out) {
  using C = ComputeType<T>;
  const C scale = static_cast<C>(1 / (1 - ratio));
  for (int64_t i = 0; i < count; ++i) out[i] = Store<T>(mask[i] ? Load(x[i]) * scale : C{0});
}

// 8-bit floats.
void ScaleKeptCodes(DType dtype, const uint8_t* x, const bool* mask, double ratio, int64_t count,
                    uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = mask[i] ? DecodeSmallFloat(dtype, x[i]) / (1 - ratio) : 0;
    out[i] = static_cast<uint8_t>(EncodeSmallFloat(dtype, value));
  }
}

// Where the uniform numbers of Dropout come from. With the attribute `seed`, the first step draws
// what ONNX's reference does (the numbers of a Mersenne twister with that seed, 53 bits each), so
// that models state their expected outputs; all else is a function of seed, node, step and place.
class DropoutNumbers {
 public:
  explicit DropoutNumbers(const PrepareContext& context)
      : key_(KeyOfNode(context)), has_seed_(context.attributes().Has("seed")) {
    seed_ = context.attributes().Int("seed", 0);
    has_seed_ = has_seed_ && seed_ >= 0 && seed_ <= std::numeric_limits<uint32_t>::max();
  }

  // kept[i] = whether the number of place first + i is at least `ratio`, for i < count <= kPiece.
  // Places of one run of the kernel must grow.
  class Step {
   public:
    Step(const DropoutNumbers& numbers, int64_t step)
        : key_(numbers.key_.Fold(static_cast<uint64_t>(step))),
          twister_(static_cast<uint32_t>(numbers.seed_)),
          twists_(numbers.has_seed_ && step == 0) {}
    void Draw(int64_t first, int64_t count, double ratio, bool* kept) {
      if (!twists_) {
        std::array<float, kPiece> numbers;
        FillUniform(key_, static_cast<uint64_t>(first), 0, 1, std::span(numbers.data(), count));
        for (int64_t i = 0; i < count; ++i) kept[i] = numbers[i] >= ratio;
        return;
      }
      twister_.discard(static_cast<uint64_t>(2 * (first - next_)));
      next_ = first + count;
      for (int64_t i = 0; i < count; ++i) {
        const double high = static_cast<double>(twister_() >> 5);
        const double low = static_cast<double>(twister_() >> 6);
        kept[i] = (high * 0x1p26 + low) * 0x1p-53 >= ratio;
      }
    }

   private:
    RandomKey key_;
    std::mt19937 twister_;
    bool twists_;
    int64_t next_ = 0;
  };

 private:
  RandomKey key_;
  bool has_seed_;
  int64_t seed_ = 0;
};

// `scale` is called with (offset of the run, its mask, ratio, count).
template <typename Fn>
absl::Status RunDropout(const DropoutMode& mode, const DropoutNumbers& numbers, const Shape& shape,
                        const OperandSlice& slice, size_t bytes, const KernelContext& run,
                        Fn scale) {
  const absl::StatusOr<double> ratio = mode.RatioOf(run);
  if (!ratio.ok()) return ratio.status();
  bool* mask = mode.MaskOf(run);
  if (*ratio == 0) {
    if (bytes > 0 && run.outputs[0] != run.inputs[0]) {
      std::memcpy(run.outputs[0], run.inputs[0], bytes);
    }
    if (mask != nullptr) std::fill(mask, mask + shape.num_elements(), true);
    return absl::OkStatus();
  }
  DropoutNumbers::Step step(numbers, run.step);
  std::array<bool, kPiece> kept;
  ForEachGlobalRun(run, shape, slice, kPiece, [&](int64_t at, int64_t place, int64_t count) {
    step.Draw(place, count, *ratio, kept.data());
    if (mask != nullptr) std::copy(kept.begin(), kept.begin() + count, mask + at);
    scale(at, kept.data(), *ratio, count);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDropout(const PrepareContext& context) {
  const DropoutMode mode(context, 1);
  const DropoutNumbers numbers(context);
  const Shape shape = context.InputShape(0);
  const OperandSlice slice = context.InputSlice(0);
  const DType dtype = context.InputDType(0);
  const size_t bytes = DTypeBytes(dtype, shape.num_elements());
  if (DTypeBits(dtype) == 8) {
    return MakeStepKernel([=](const KernelContext& run) {
      return RunDropout(mode, numbers, shape, slice, bytes, run,
                        [&](int64_t at, const bool* kept, double ratio, int64_t count) {
                          ScaleKeptCodes(dtype, Input<uint8_t>(run, 0) + at, kept, ratio, count,
                                         Output<uint8_t>(run, 0) + at);
                        });
    });
  }
  return PrepareByDType(
      context, dtype, FloatTypes(), [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeStepKernel([=](const KernelContext& run) {
          return RunDropout(mode, numbers, shape, slice, bytes, run,
                            [&](int64_t at, const bool* kept, double ratio, int64_t count) {
                              ScaleKept<T>(Input<T>(run, 0) + at, kept, ratio, count,
                                           Output<T>(run, 0) + at);
                            });
        });
      });
}
WEFT_REGISTER_KERNEL("", "Dropout", DeviceKind::kCpu, PrepareDropout);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDropoutGrad(const PrepareContext& context) {
  const DropoutMode mode(context, 2);
  const int64_t elements = context.InputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) -> absl::Status {
                            const absl::StatusOr<double> ratio = mode.RatioOf(run);
                            if (!ratio.ok()) return ratio.status();
                            ScaleKept<T>(Input<T>(run, 0), Input<bool>(run, 1), *ratio, elements,
                                         Output<T>(run, 0));
                            return absl::OkStatus();
                          });
                        });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "DropoutGrad", DeviceKind::kCpu, PrepareDropoutGrad);

}  // namespace
}  // namespace weft::cpu
