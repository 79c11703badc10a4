#include "ops/kernels/cpu/pool/pool_general.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/window_rows.h"
#include "ops/kernels/cpu/pool/pool_global_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct GeneralPool {
  std::vector<WindowAxis> axes;
  int64_t planes = 0;
  int64_t input = 1;  // elements of a plane
  int64_t output = 1;
  int64_t window = 1;
  int threads = 1;

  // body(plane) for each sample and channel.
  template <typename Fn>
  void ForEachPlane(double nanoseconds_per_tap, Fn body) const {
    const double nanoseconds = nanoseconds_per_tap * static_cast<double>(output * window);
    ParallelFor(threads, planes, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  }
};

// All of it is walked, however much of it lies in the padding.
constexpr int64_t kLargestWindow = int64_t{1} << 22;

absl::StatusOr<GeneralPool> PlanGeneral(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const auto window =
      WindowSpec::Create(context.attributes(), context.attributes().Ints("kernel_shape"));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  GeneralPool pool;
  pool.axes = *axes;
  pool.planes = x.ProductOf(0, 2);
  for (const WindowAxis& axis : *axes) {
    pool.input *= axis.input;
    pool.output *= axis.output;
    pool.window *= axis.kernel;
    if (pool.window > kLargestWindow) {
      return context.InvalidArgument(absl::StrCat("windows of ", pool.window, " elements"));
    }
  }
  pool.threads = context.threads();
  return pool;
}

// ---- MaxPool.

using PoolTypes = TypeList<float, double, Float16, Bfloat16, int8_t, uint8_t>;

template <typename T>
T Lowest() {
  using Compute = ComputeType<T>;
  if constexpr (std::is_integral_v<Compute>) return std::numeric_limits<Compute>::lowest();
  return Store<T>(-std::numeric_limits<Compute>::infinity());
}

// Position in a plane when the first image axis runs fastest.
int64_t ByColumn(const std::vector<WindowAxis>& axes, int64_t position) {
  int64_t index = 0;
  for (size_t i = axes.size(); i-- > 0;) {
    index = index * axes[i].input + position % axes[i].input;
    position /= axes[i].input;
  }
  return index;
}

template <typename T>
void MaxOfPlane(const GeneralPool& pool, const T* x, T* y, int64_t* indices) {
  std::fill_n(y, pool.output, Lowest<T>());
  if (indices != nullptr) std::fill_n(indices, pool.output, int64_t{-1});
  ForEachWindowRow(pool.axes, [&](const WindowRow& row) {
    for (int64_t o = row.first; o < row.last; ++o) {
      const int64_t position = row.input + o * row.stride;
      const ComputeType<T> candidate = Load(x[position]);
      const bool unset = indices != nullptr && indices[row.output + o] < 0;
      if (!unset && !(candidate > Load(y[row.output + o])) && candidate == candidate) continue;
      y[row.output + o] = x[position];
      if (indices != nullptr) indices[row.output + o] = position;
    }
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGeneralMaxPool(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GeneralPool pool, PlanGeneral(context));
  const bool with_indices = context.HasOutput(1);
  const bool by_column = context.attributes().Int("storage_order", 0) != 0;
  return PrepareByDType(
      context, context.InputDType(0), PoolTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          pool.ForEachPlane(1, [&](int64_t i) {
            int64_t* const indices =
                with_indices ? Output<int64_t>(run, 1) + i * pool.output : nullptr;
            MaxOfPlane(pool, Input<T>(run, 0) + i * pool.input, Output<T>(run, 0) + i * pool.output,
                       indices);
            for (int64_t o = 0; with_indices && o < pool.output; ++o) {
              if (indices[o] < 0) continue;
              indices[o] =
                  i * pool.input + (by_column ? ByColumn(pool.axes, indices[o]) : indices[o]);
            }
          });
          return absl::OkStatus();
        });
      });
}

// ---- AveragePool.

namespace {

using RealFloats = TypeList<float, double>;

// What the sum of each window is divided by: its elements in the image, or in the padding, too.
std::vector<double> Divisors(const GeneralPool& pool, bool count_padding) {
  std::vector<double> divisors(1, 1.0);
  for (const WindowAxis& axis : pool.axes) {
    WindowAxis counted = axis;
    if (count_padding) counted.input += counted.pad_end;
    std::vector<double> next;
    for (const double outer : divisors) {
      for (int64_t o = 0; o < axis.output; ++o) {
        const int64_t start = axis.Start(o);
        const int64_t first = count_padding ? 0 : counted.FirstInside(start);
        const int64_t count = std::max<int64_t>(counted.LastInside(start) - first, 0);
        next.push_back(outer * static_cast<double>(count));
      }
    }
    divisors = std::move(next);
  }
  return divisors;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGeneralAveragePool(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GeneralPool pool, PlanGeneral(context));
  const std::vector<double> divisors =
      Divisors(pool, context.attributes().Int("count_include_pad", 0) != 0);
  return PrepareByDType(context, context.InputDType(0), RealFloats{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            pool.ForEachPlane(0.5, [&](int64_t i) {
                              const T* x = Input<T>(run, 0) + i * pool.input;
                              T* y = Output<T>(run, 0) + i * pool.output;
                              std::fill_n(y, pool.output, T(0));
                              ForEachWindowRow(pool.axes, [&](const WindowRow& row) {
                                for (int64_t o = row.first; o < row.last; ++o) {
                                  y[row.output + o] += x[row.input + o * row.stride];
                                }
                              });
                              for (int64_t o = 0; o < pool.output; ++o) {
                                y[o] = divisors[o] == 0 ? T(0) : static_cast<T>(y[o] / divisors[o]);
                              }
                            });
                            return absl::OkStatus();
                          });
                        });
}

// ---- LpPool and the global pools.

namespace {

// |x|^p and its inverse.
struct Power {
  int64_t p = 2;

  template <typename T>
  T Raise(T x) const {
    if (p == 2) return x * x;
    if (p == 1) return std::abs(x);
    return std::pow(std::abs(x), static_cast<T>(p));
  }
  template <typename T>
  T Root(T sum) const {
    if (p == 2) return std::sqrt(sum);
    if (p == 1) return sum;
    return std::pow(sum, T(1) / static_cast<T>(p));
  }
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLpPool(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GeneralPool pool, PlanGeneral(context));
  const Power power{context.attributes().Int("p", 2)};
  return PrepareByDType(context, context.InputDType(0), RealFloats{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            pool.ForEachPlane(power.p <= 2 ? 0.5 : 20, [&](int64_t i) {
                              const T* x = Input<T>(run, 0) + i * pool.input;
                              T* y = Output<T>(run, 0) + i * pool.output;
                              std::fill_n(y, pool.output, T(0));
                              ForEachWindowRow(pool.axes, [&](const WindowRow& row) {
                                for (int64_t o = row.first; o < row.last; ++o) {
                                  y[row.output + o] += power.Raise(x[row.input + o * row.stride]);
                                }
                              });
                              for (int64_t o = 0; o < pool.output; ++o) y[o] = power.Root(y[o]);
                            });
                            return absl::OkStatus();
                          });
                        });
}

// Output 0 = reduce(plane, elements) for each plane.
template <typename T, typename Fn>
std::unique_ptr<Kernel> MakeGlobal(const PrepareContext& context, double nanoseconds, Fn reduce) {
  const Shape& x = context.InputShape(0);
  const int64_t planes = x.ProductOf(0, 2);
  const int64_t size = x.ProductOf(2, x.rank());
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    ParallelFor(threads, planes, nanoseconds * static_cast<double>(size), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    Output<T>(run, 0)[i] = reduce(Input<T>(run, 0) + i * size, size);
                  }
                });
    return absl::OkStatus();
  });
}

std::unique_ptr<Kernel> MakeVectorGlobalMax(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const int64_t planes = x.ProductOf(0, 2);
  const int64_t size = x.ProductOf(2, x.rank());
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    ParallelFor(threads, planes, 5 + 0.08 * static_cast<double>(size), 1,
                [&](int64_t begin, int64_t end) {
                  MaxOfPlanes(Input<float>(run, 0) + begin * size, end - begin, size,
                              Output<float>(run, 0) + begin);
                });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalMaxPool(const PrepareContext& context) {
  if (context.InputDType(0) == DType::kFloat32) return MakeVectorGlobalMax(context);
  return PrepareByDType(context, context.InputDType(0), FloatTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeGlobal<T>(context, 0.5, [](const T* x, int64_t count) {
                            T best = Lowest<T>();
                            for (int64_t i = 0; i < count; ++i) {
                              const ComputeType<T> candidate = Load(x[i]);
                              if (candidate > Load(best) || candidate != candidate) best = x[i];
                            }
                            return best;
                          });
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalLpPool(const PrepareContext& context) {
  const Power power{context.attributes().Int("p", 2)};
  return PrepareByDType(context, context.InputDType(0), FloatTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeGlobal<T>(
                              context, power.p <= 2 ? 0.5 : 20, [power](const T* x, int64_t count) {
                                double sum = 0;
                                for (int64_t i = 0; i < count; ++i)
                                  sum += power.Raise(static_cast<double>(Load(x[i])));
                                return Store<T>(static_cast<ComputeType<T>>(power.Root(sum)));
                              });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LpPool", DeviceKind::kCpu, Widened(PrepareLpPool));
WEFT_REGISTER_KERNEL("", "GlobalMaxPool", DeviceKind::kCpu, PrepareGlobalMaxPool);
WEFT_REGISTER_KERNEL("", "GlobalLpPool", DeviceKind::kCpu, PrepareGlobalLpPool);

}  // namespace weft::cpu
