// InstanceNormalization, GroupNormalization, RMSNormalization, LpNormalization and LRN.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/normalization/normalization_math.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- Groups of channels.

struct GroupPlan {
  int64_t rows = 0;  // samples and groups
  int64_t groups = 0;
  int64_t channels = 0;  // of a group
  int64_t plane = 0;
  double epsilon = 0;
  bool per_group = false;  // scale and bias
  int threads = 1;
};

template <typename T>
void NormalizeGroup(const GroupPlan& plan, const KernelContext& run, int64_t row) {
  using S = ComputeType<T>;
  const int64_t count = plan.channels * plan.plane;
  const T* const x = Input<T>(run, 0) + row * count;
  T* const y = Output<T>(run, 0) + row * count;
  const S mean = SumOf(x, count) / static_cast<S>(count);
  const S variance = SumOfSquaredDeviations(x, count, mean) / static_cast<S>(count);
  const S inverse = S(1) / std::sqrt(variance + static_cast<S>(plan.epsilon));
  const int64_t group = row % plan.groups;
  for (int64_t c = 0; c < plan.channels; ++c) {
    const int64_t parameter = plan.per_group ? group : group * plan.channels + c;
    const S factor = inverse * Load(Input<T>(run, 1)[parameter]);
    const S bias = Load(Input<T>(run, 2)[parameter]);
    for (int64_t i = c * plan.plane; i < (c + 1) * plan.plane; ++i) {
      y[i] = Store<T>((Load(x[i]) - mean) * factor + bias);
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeGroups(const PrepareContext& context,
                                                   const GroupPlan& plan) {
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          const double nanoseconds = 0.7 * static_cast<double>(plan.channels * plan.plane);
          ParallelFor(plan.threads, plan.rows, nanoseconds, 1, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) NormalizeGroup<T>(plan, run, row);
          });
          return absl::OkStatus();
        });
      });
}

GroupPlan PlanGroups(const PrepareContext& context, int64_t groups) {
  const Shape& x = context.InputShape(0);
  GroupPlan plan;
  plan.groups = std::max<int64_t>(groups, 1);
  plan.rows = x.num_elements() == 0 ? 0 : x.dim(0) * plan.groups;
  plan.channels = x.dim(1) / plan.groups;
  plan.plane = x.ProductOf(2, x.rank());
  plan.epsilon = context.attributes().Float("epsilon", 1e-5f);
  plan.per_group = context.InputShape(1).dim(0) != x.dim(1);
  plan.threads = context.threads();
  return plan;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareInstanceNormalization(
    const PrepareContext& context) {
  return MakeGroups(context, PlanGroups(context, context.InputShape(0).dim(1)));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGroupNormalization(const PrepareContext& context) {
  if (!(context.InputShape(1) == context.InputShape(2))) {
    return context.InvalidArgument("scale and bias must have the same shape");
  }
  return MakeGroups(context, PlanGroups(context, context.attributes().Int("num_groups", 1)));
}

// ---- RMSNormalization. Zhang and Sennrich, Root Mean Square Layer Normalization (2019).

template <typename T>
T SumOfSquares(const T* x, int64_t count) {
  return SumOfSquaredDeviations(x, count, T(0));
}

// Where scale's element for each element of a row lies; empty: side by side.
std::vector<int64_t> ScaleOffsets(const Shape& x, int axis, const Shape& scale) {
  const int64_t columns = x.ProductOf(axis, x.rank());
  if (scale.num_elements() == columns) return {};
  std::vector<int64_t> offsets(static_cast<size_t>(columns), 0);
  for (int64_t i = 0; i < columns; ++i) {
    int64_t rest = i;
    int64_t stride = 1;
    for (int k = 1; k <= x.rank() - axis && k <= scale.rank(); ++k) {
      const int64_t size = x.dim(x.rank() - k);
      const int64_t own = scale.dim(scale.rank() - k);
      if (own != 1) offsets[i] += rest % size * stride;
      stride *= own;
      rest /= size;
    }
  }
  return offsets;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRmsNormalization(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const int64_t rows = x.ProductOf(0, axis);
  const int64_t columns = x.ProductOf(axis, x.rank());
  const float epsilon = context.attributes().Float("epsilon", 1e-5f);
  const std::vector<int64_t> offsets = ScaleOffsets(x, axis, context.InputShape(1));
  const int threads = context.threads();
  return PrepareByDType(
      context, context.InputDType(0), TypeList<float, double>{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          const double nanoseconds = 0.3 * static_cast<double>(columns);
          ParallelFor(threads, rows, nanoseconds, 1, [&](int64_t begin, int64_t end) {
            const T* const scale = Input<T>(run, 1);
            for (int64_t row = begin; row < end; ++row) {
              const T* from = Input<T>(run, 0) + row * columns;
              T* to = Output<T>(run, 0) + row * columns;
              const T mean = SumOfSquares(from, columns) / static_cast<T>(columns);
              const T inverse = T(1) / std::sqrt(mean + static_cast<T>(epsilon));
              if (offsets.empty()) {
                for (int64_t i = 0; i < columns; ++i) to[i] = from[i] * inverse * scale[i];
              } else {
                for (int64_t i = 0; i < columns; ++i) {
                  to[i] = from[i] * inverse * scale[offsets[i]];
                }
              }
            }
          });
          return absl::OkStatus();
        });
      });
}

// ---- LpNormalization and LRN: along an axis, a block of the elements behind it at a time.

constexpr int64_t kBlock = 256;

// X as [outer, size, inner]; body(outer index, first element, count) for blocks of inner.
template <typename Fn>
void ForEachBlock(int threads, int64_t outer, int64_t inner, double nanoseconds_per_element,
                  Fn body) {
  const int64_t blocks = (inner + kBlock - 1) / kBlock;
  const double nanoseconds = nanoseconds_per_element * static_cast<double>(std::min(inner, kBlock));
  ParallelFor(threads, outer * blocks, nanoseconds, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kBlock;
      body(i / blocks, first, std::min(kBlock, inner - first));
    }
  });
}

template <typename T>
void LpNormalizeBlock(const T* x, int64_t size, int64_t inner, int64_t count, bool squares, T* y) {
  using S = std::conditional_t<std::is_same_v<ComputeType<T>, double>, double, float>;
  std::array<double, kBlock> norms;
  std::fill_n(norms.begin(), count, 0.0);
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      const double value = Load(x[k * inner + i]);
      norms[i] += squares ? value * value : std::abs(value);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const double norm = squares ? std::sqrt(norms[i]) : norms[i];
    norms[i] = norm == 0 ? 0.0 : 1.0 / norm;
  }
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = k * inner + i;
      y[at] = Store<T>(static_cast<S>(Load(x[at]) * norms[i]));
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLpNormalization(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const int64_t outer = x.ProductOf(0, axis);
  const int64_t size = x.dim(axis);
  const int64_t inner = x.ProductOf(axis + 1, x.rank());
  const bool squares = context.attributes().Int("p", 2) == 2;
  const int threads = context.threads();
  return PrepareByDType(context, context.InputDType(0), FloatTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            ForEachBlock(threads, outer, inner, 2.0 * static_cast<double>(size),
                                         [&](int64_t o, int64_t first, int64_t count) {
                                           const int64_t at = o * size * inner + first;
                                           LpNormalizeBlock(Input<T>(run, 0) + at, size, inner,
                                                            count, squares, Output<T>(run, 0) + at);
                                         });
                            return absl::OkStatus();
                          });
                        });
}

// Krizhevsky, Sutskever and Hinton, ImageNet Classification (2012), section 3.3.
struct LrnPlan {
  int64_t channels = 0;
  int64_t plane = 0;
  int64_t before = 0;  // channels before and after in the sum
  int64_t after = 0;
  double factor = 0;  // alpha / size
  double beta = 0;
  double bias = 0;
};

template <typename T>
void LrnBlock(const LrnPlan& plan, const T* x, int64_t count, T* y) {
  using S = ComputeType<T>;
  std::array<S, kBlock> sums;
  for (int64_t c = 0; c < plan.channels; ++c) {
    std::fill_n(sums.begin(), count, S(0));
    const int64_t first = std::max<int64_t>(c - plan.before, 0);
    const int64_t last = std::min(c + plan.after + 1, plan.channels);
    for (int64_t k = first; k < last; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        const S value = Load(x[k * plan.plane + i]);
        sums[i] += value * value;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      const S base = static_cast<S>(plan.bias) + static_cast<S>(plan.factor) * sums[i];
      const int64_t at = c * plan.plane + i;
      y[at] = Store<T>(Load(x[at]) / std::pow(base, static_cast<S>(plan.beta)));
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLrn(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const int64_t size = context.attributes().Int("size", 1);
  const int64_t samples = x.dim(0);
  const int threads = context.threads();
  LrnPlan plan;
  plan.channels = x.dim(1);
  plan.plane = x.ProductOf(2, x.rank());
  plan.before = (size - 1) / 2;
  plan.after = size / 2;
  plan.factor = context.attributes().Float("alpha", 0.0001f) / static_cast<double>(size);
  plan.beta = context.attributes().Float("beta", 0.75f);
  plan.bias = context.attributes().Float("bias", 1.0f);
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          ForEachBlock(threads, samples, plan.plane, 10.0 * static_cast<double>(plan.channels),
                       [&](int64_t n, int64_t first, int64_t count) {
                         const int64_t at = n * plan.channels * plan.plane + first;
                         LrnBlock(plan, Input<T>(run, 0) + at, count, Output<T>(run, 0) + at);
                       });
          return absl::OkStatus();
        });
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "InstanceNormalization", DeviceKind::kCpu, PrepareInstanceNormalization);
WEFT_REGISTER_KERNEL("", "GroupNormalization", DeviceKind::kCpu, PrepareGroupNormalization);
WEFT_REGISTER_KERNEL("", "RMSNormalization", DeviceKind::kCpu, Widened(PrepareRmsNormalization));
WEFT_REGISTER_KERNEL("", "LpNormalization", DeviceKind::kCpu, PrepareLpNormalization);
WEFT_REGISTER_KERNEL("", "LRN", DeviceKind::kCpu, PrepareLrn);

}  // namespace weft::cpu
