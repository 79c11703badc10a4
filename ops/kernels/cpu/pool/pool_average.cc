// AveragePool, GlobalAveragePool and their gradients, in loops of our own: over tiles of planes for
// float32, over planes for others.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/pool/pool_general.h"
#include "ops/kernels/cpu/pool/pool_global_simd.h"
#include "ops/kernels/cpu/pool/pool_plan.h"
#include "ops/kernels/cpu/pool/pool_tiles.h"
#include "ops/kernels/cpu/pool/pool_tiles_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Sums half-precision elements in float, others in their own type.
template <typename T>
using Sum = ComputeType<T>;

// The number of elements a window's sum is divided by. With count_include_pad also those in the
// padding, but none beyond it (where ceil_mode may reach).
int64_t Divisor(const PoolPlan& plan, const PoolWindow& window, bool count_padding) {
  int64_t count = 1;
  for (int i = 0; i < 3; ++i) {
    if (!count_padding) {
      count *= std::max<int64_t>(window.last[i] - window.first[i], 0);
      continue;
    }
    WindowAxis padded = plan.axes[i];
    padded.input += padded.pad_end;
    count *= padded.LastInside(window.start[i]);
  }
  return count;
}

struct AveragePlan {
  PoolPlan pool;
  bool count_padding;
  int threads;
  double nanoseconds;  // per plane
};

absl::StatusOr<AveragePlan> PlanAverage(const PrepareContext& context, const Shape& x,
                                        const Shape& y) {
  WEFT_ASSIGN_OR_RETURN(const PoolPlan pool, PlanPool(context, x, y));
  return AveragePlan{pool, context.attributes().Int("count_include_pad", 0) != 0, context.threads(),
                     static_cast<double>(pool.plane_output() * pool.window())};
}

template <typename T>
void AverageOfPlane(const AveragePlan& plan, const T* x, T* y) {
  ForEachWindow(plan.pool, [&](const PoolWindow& window) {
    Sum<T> sum = 0;
    ForEachInside(plan.pool, window, [&](int64_t position) {
      sum += Load(x[position]);
      return true;
    });
    const int64_t divisor = Divisor(plan.pool, window, plan.count_padding);
    *y++ = Store<T>(divisor == 0 ? Sum<T>(0) : sum / static_cast<Sum<T>>(divisor));
  });
}

template <typename T>
void AverageGradientOfPlane(const AveragePlan& plan, const T* dy, T* dx) {
  std::fill_n(dx, plan.pool.plane_input(), Store<T>(0));
  ForEachWindow(plan.pool, [&](const PoolWindow& window) {
    const int64_t divisor = Divisor(plan.pool, window, plan.count_padding);
    const Sum<T> share = divisor == 0 ? Sum<T>(0) : Load(*dy) / static_cast<Sum<T>>(divisor);
    ++dy;
    ForEachInside(plan.pool, window, [&](int64_t position) {
      dx[position] = Store<T>(Load(dx[position]) + share);
      return true;
    });
  });
}

// ---- float32, a tile at a time.

// The numbers along one axis whose product Divisor() is.
std::vector<float> CountsAlong(const WindowAxis& axis, bool count_padding) {
  WindowAxis counted = axis;
  if (count_padding) counted.input += counted.pad_end;
  std::vector<float> counts;
  for (int64_t o = 0; o < axis.output; ++o) {
    const int64_t start = axis.Start(o);
    const int64_t first = count_padding ? 0 : counted.FirstInside(start);
    counts.push_back(static_cast<float>(std::max<int64_t>(counted.LastInside(start) - first, 0)));
  }
  return counts;
}

WindowCounts CountsOf(const AveragePlan& plan) {
  WindowCounts counts{CountsAlong(plan.pool.axes[0], plan.count_padding),
                      CountsAlong(plan.pool.axes[1], plan.count_padding),
                      CountsAlong(plan.pool.axes[2], plan.count_padding)};
  counts.width.insert(counts.width.end(), 16, 1.0f);
  return counts;
}

std::unique_ptr<Kernel> MakeTiledAverage(const AveragePlan& plan, PoolTiles tiles) {
  const size_t bytes = tiles.bytes;
  return MakeKernel(
      [=, tiles = std::move(tiles), counts = CountsOf(plan)](const KernelContext& run) {
        ParallelForSlots(plan.threads, plan.pool.planes * tiles.cut.per_plane(),
                         tiles.nanoseconds(), 1, [&](int slot, int64_t begin, int64_t end) {
                           AverageOfTiles(tiles, counts, begin, end, Input<float>(run, 0),
                                          Output<float>(run, 0), At(run.workspace, slot * bytes));
                         });
        return absl::OkStatus();
      },
      bytes * plan.threads);
}

std::unique_ptr<Kernel> MakeTiledAverageGradient(const AveragePlan& plan, SpreadTiles tiles) {
  const size_t bytes = tiles.bytes;
  return MakeKernel(
      [=, tiles = std::move(tiles), counts = CountsOf(plan)](const KernelContext& run) {
        ParallelForSlots(plan.threads, plan.pool.planes * tiles.cut.per_plane(),
                         tiles.nanoseconds(), 1, [&](int slot, int64_t begin, int64_t end) {
                           AverageGradientOfTiles(tiles, counts, begin, end, Input<float>(run, 0),
                                                  Output<float>(run, 0),
                                                  At(run.workspace, slot * bytes));
                         });
        return absl::OkStatus();
      },
      bytes * plan.threads);
}

// Whether there is one window, which is the plane.
bool TakesWholePlane(const PoolPlan& plan) {
  for (const WindowAxis& axis : plan.axes) {
    if (axis.output != 1 || axis.kernel != axis.input || axis.pad_begin != 0) return false;
    if (axis.dilation != 1 || axis.pad_end != 0) return false;
  }
  return true;
}

std::unique_ptr<Kernel> MakeGlobalAverage(int64_t planes, int64_t size, int threads) {
  return MakeKernel([=](const KernelContext& run) {
    ParallelFor(threads, planes, 5 + 0.05 * static_cast<double>(size), 1,
                [&](int64_t begin, int64_t end) {
                  AverageOfPlanes(Input<float>(run, 0) + begin * size, end - begin, size,
                                  Output<float>(run, 0) + begin);
                });
    return absl::OkStatus();
  });
}

std::unique_ptr<Kernel> MakeGlobalAverageGradient(int64_t planes, int64_t size, int threads) {
  return MakeKernel([=](const KernelContext& run) {
    ParallelFor(threads, planes, 5 + 0.05 * static_cast<double>(size), 1,
                [&](int64_t begin, int64_t end) {
                  SpreadOverPlanes(Input<float>(run, 0) + begin, end - begin, size,
                                   Output<float>(run, 0) + begin * size);
                });
    return absl::OkStatus();
  });
}

// Null where the plain loops are to be taken.
std::unique_ptr<Kernel> MakeVectorAverage(const AveragePlan& plan) {
  const int64_t size = plan.pool.plane_input();
  if (TakesWholePlane(plan.pool)) return MakeGlobalAverage(plan.pool.planes, size, plan.threads);
  std::optional<PoolTiles> tiles = CutPool(plan.pool, /*with_positions=*/false);
  return tiles.has_value() ? MakeTiledAverage(plan, *std::move(tiles)) : nullptr;
}

std::unique_ptr<Kernel> MakeVectorAverageGradient(const AveragePlan& plan) {
  const int64_t size = plan.pool.plane_input();
  if (TakesWholePlane(plan.pool)) {
    return MakeGlobalAverageGradient(plan.pool.planes, size, plan.threads);
  }
  std::optional<SpreadTiles> tiles = CutSpread(plan.pool);
  return tiles.has_value() ? MakeTiledAverageGradient(plan, *std::move(tiles)) : nullptr;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAveragePool(const PrepareContext& context) {
  if (context.InputShape(0).rank() > 5) return Widened(PrepareGeneralAveragePool)(context);
  WEFT_ASSIGN_OR_RETURN(const AveragePlan plan,
                        PlanAverage(context, context.InputShape(0), context.OutputShape(0)));
  if (context.InputDType(0) == DType::kFloat32) {
    if (auto kernel = MakeVectorAverage(plan)) return kernel;
  }
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          ParallelFor(plan.threads, plan.pool.planes, plan.nanoseconds, 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          AverageOfPlane(plan, Input<T>(run, 0) + i * plan.pool.plane_input(),
                                         Output<T>(run, 0) + i * plan.pool.plane_output());
                        }
                      });
          return absl::OkStatus();
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAveragePoolGradient(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const AveragePlan plan,
                        PlanAverage(context, context.OutputShape(0), context.InputShape(0)));
  if (context.InputDType(0) == DType::kFloat32) {
    if (auto kernel = MakeVectorAverageGradient(plan)) return kernel;
  }
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          ParallelFor(
              plan.threads, plan.pool.planes, plan.nanoseconds, 1, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  AverageGradientOfPlane(plan, Input<T>(run, 0) + i * plan.pool.plane_output(),
                                         Output<T>(run, 0) + i * plan.pool.plane_input());
                }
              });
          return absl::OkStatus();
        });
      });
}

// ---- Over the whole image.

struct GlobalPlan {
  int64_t planes = 0;
  int64_t size = 0;  // of a plane
  int threads = 1;
};

GlobalPlan PlanGlobal(const PrepareContext& context, const Shape& x) {
  return GlobalPlan{x.ProductOf(0, 2), x.ProductOf(2, x.rank()), context.threads()};
}

// In sixteen chains, so that the compiler may use vectors and the error stays small.
template <typename T>
Sum<T> SumOf(const T* x, int64_t count) {
  constexpr int kChains = 16;
  Sum<T> sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains) {
    for (int k = 0; k < kChains; ++k) sums[k] += Load(x[i + k]);
  }
  for (int k = 0; i < count; ++i, ++k) sums[k] += Load(x[i]);
  for (int width = kChains / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) sums[k] += sums[k + width];
  }
  return sums[0];
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalAveragePool(const PrepareContext& context) {
  const GlobalPlan plan = PlanGlobal(context, context.InputShape(0));
  if (context.InputDType(0) == DType::kFloat32) {
    return MakeGlobalAverage(plan.planes, plan.size, plan.threads);
  }
  return PrepareByDType(context, context.InputDType(0), FloatTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan](const KernelContext& run) {
                            const T* x = Input<T>(run, 0);
                            T* y = Output<T>(run, 0);
                            ParallelFor(plan.threads, plan.planes,
                                        0.2 * static_cast<double>(plan.size), 1,
                                        [&](int64_t begin, int64_t end) {
                                          for (int64_t i = begin; i < end; ++i) {
                                            y[i] = Store<T>(SumOf(x + i * plan.size, plan.size) /
                                                            static_cast<Sum<T>>(plan.size));
                                          }
                                        });
                            return absl::OkStatus();
                          });
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalAveragePoolGradient(
    const PrepareContext& context) {
  const Shape& x = context.OutputShape(0);
  const Shape& dy = context.InputShape(0);
  if (dy.num_elements() != x.ProductOf(0, 2)) {
    return context.InvalidArgument(absl::StrCat(
        "dY of shape ", dy.ToString(), " is not the average over the images of ", x.ToString()));
  }
  const GlobalPlan plan = PlanGlobal(context, x);
  if (context.InputDType(0) == DType::kFloat32) {
    return MakeGlobalAverageGradient(plan.planes, plan.size, plan.threads);
  }
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          const T* dy = Input<T>(run, 0);
          T* dx = Output<T>(run, 0);
          ParallelFor(plan.threads, plan.planes, 0.2 * static_cast<double>(plan.size), 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const T share = Store<T>(Load(dy[i]) / static_cast<Sum<T>>(plan.size));
                          std::fill_n(dx + i * plan.size, plan.size, share);
                        }
                      });
          return absl::OkStatus();
        });
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "AveragePool", DeviceKind::kCpu, Widened(PrepareAveragePool));
WEFT_REGISTER_KERNEL("ai.weft", "AveragePoolGrad", DeviceKind::kCpu,
                     Widened(PrepareAveragePoolGradient));
WEFT_REGISTER_KERNEL("", "GlobalAveragePool", DeviceKind::kCpu, PrepareGlobalAveragePool);
WEFT_REGISTER_KERNEL("ai.weft", "GlobalAveragePoolGrad", DeviceKind::kCpu,
                     PrepareGlobalAveragePoolGradient);

}  // namespace weft::cpu
