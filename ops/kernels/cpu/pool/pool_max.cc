// MaxPool and its gradient, in loops of our own: over tiles of planes for float32, over planes for
// others.
#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/window_rows.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/pool/pool_general.h"
#include "ops/kernels/cpu/pool/pool_plan.h"
#include "ops/kernels/cpu/pool/pool_simd.h"
#include "ops/kernels/cpu/pool/pool_tiles.h"
#include "ops/kernels/cpu/pool/pool_tiles_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using PoolTypes = TypeList<float, double, Float16, Bfloat16, int8_t, uint8_t>;

template <typename T>
T Lowest() {
  using Compute = ComputeType<T>;
  if constexpr (std::is_integral_v<Compute>) return std::numeric_limits<Compute>::lowest();
  return Store<T>(-std::numeric_limits<Compute>::infinity());
}

// NaN wins over numbers and stays.
template <typename T>
bool Replaces(T candidate, T best) {
  const ComputeType<T> c = Load(candidate);
  return c > Load(best) || c != c;
}

TwoByTwoPlane TwoByTwo(const PoolPlan& plan) {
  return {plan.axes[2].input, plan.axes[1].output, plan.axes[2].output};
}

// ---- Without indices: row by row, so that the inner loop runs along the width.

template <typename T>
void MaxOfRow(const WindowAxis& width, const T* x, T* y) {
  for (int64_t t = 0; t < width.kernel; ++t) {
    const OutputRange range = OutputsReached(width, t);
    const int64_t offset = t * width.dilation - width.pad_begin;
    for (int64_t i = range.first; i < range.last; ++i) {
      const T candidate = x[i * width.stride + offset];
      if (Replaces(candidate, y[i])) y[i] = candidate;
    }
  }
}

template <typename T>
void MaxOfPlane(const PoolPlan& plan, const T* x, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    if (plan.two_by_two()) return MaxOfTwoByTwo(TwoByTwo(plan), x, y);
  }
  const auto& [depth, height, width] = plan.axes;
  for (int64_t d = 0; d < depth.output; ++d) {
    for (int64_t h = 0; h < height.output; ++h, y += width.output) {
      const PoolWindow window(plan, d, h, 0);
      std::fill_n(y, width.output, Lowest<T>());
      for (int64_t i = window.first[0]; i < window.last[0]; ++i) {
        for (int64_t j = window.first[1]; j < window.last[1]; ++j) {
          const int64_t row = (window.start[0] + i * depth.dilation) * height.input +
                              window.start[1] + j * height.dilation;
          MaxOfRow(width, x + row * width.input, y);
        }
      }
    }
  }
}

// ---- With indices: window by window.

// Position in the whole tensor of a position in plane `plane` of this shard.
class IndexMap {
 public:
  IndexMap(const PrepareContext& context, const PoolPlan& plan)
      : plan_(plan),
        slice_(context.InputSlice(0)),
        channels_(std::max<int64_t>(context.InputShape(0).dim(1), 1)),
        by_column_(context.attributes().Int("storage_order", 0) != 0) {}

  int64_t Base(int64_t plane) const {
    const int64_t sample = slice_.offset[0] + plane / channels_;
    const int64_t channel = slice_.offset[1] + plane % channels_;
    return (sample * slice_.global_shape.dim(1) + channel) * plan_.plane_input();
  }
  bool by_column() const { return by_column_; }
  int64_t InPlane(int64_t position) const {
    if (!by_column_) return position;
    const auto& [depth, height, width] = plan_.axes;
    const int64_t w = position % width.input;
    const int64_t h = position / width.input % height.input;
    const int64_t d = position / width.input / height.input;
    return d + depth.input * (h + height.input * w);
  }

 private:
  const PoolPlan plan_;
  const OperandSlice slice_;
  const int64_t channels_;
  const bool by_column_;  // the first image axis runs fastest
};

template <typename T>
void MaxOfPlaneWithIndices(const PoolPlan& plan, const IndexMap& map, int64_t base, const T* x,
                           T* y, int64_t* indices) {
  ForEachWindow(plan, [&](const PoolWindow& window) {
    T best = Lowest<T>();
    int64_t where = -1;
    ForEachInside(plan, window, [&](int64_t position) {
      if (where < 0 || Replaces(x[position], best)) {
        best = x[position];
        where = position;
      }
      return true;
    });
    *y++ = best;
    *indices++ = where < 0 ? -1 : base + map.InPlane(where);  // -1: all of it in the padding
  });
}

// ---- float32, a tile at a time.

std::unique_ptr<Kernel> MakeTiledMax(PoolTiles tiles, int threads) {
  const size_t bytes = tiles.bytes;
  const int64_t items = tiles.plan.planes * tiles.cut.per_plane();
  return MakeKernel(
      [=, tiles = std::move(tiles)](const KernelContext& run) {
        ParallelForSlots(threads, items, tiles.nanoseconds(), 1,
                         [&](int slot, int64_t begin, int64_t end) {
                           MaxOfTiles(tiles, begin, end, Input<float>(run, 0),
                                      Output<float>(run, 0), At(run.workspace, slot * bytes));
                         });
        return absl::OkStatus();
      },
      bytes * threads);
}

std::unique_ptr<Kernel> MakeTiledMaxWithIndices(PoolTiles tiles, const IndexMap& map, int threads) {
  const size_t bytes = tiles.bytes;
  const int64_t items = tiles.plan.planes * tiles.cut.per_plane();
  return MakeKernel(
      [=, tiles = std::move(tiles)](const KernelContext& run) {
        ParallelForSlots(
            threads, items, 2 * tiles.nanoseconds(), 1, [&](int slot, int64_t begin, int64_t end) {
              MaxWithPositionsOfTiles(
                  tiles, begin, end, Input<float>(run, 0), Output<float>(run, 0),
                  Output<int64_t>(run, 1), [&](int64_t plane) { return map.Base(plane); },
                  At(run.workspace, slot * bytes));
            });
        return absl::OkStatus();
      },
      bytes * threads);
}

// Null where the plain loops are to be taken.
std::unique_ptr<Kernel> MakeVectorMax(const PrepareContext& context, const PoolPlan& plan,
                                      const IndexMap& map) {
  const bool with_indices = context.HasOutput(1);
  if (context.InputDType(0) != DType::kFloat32) return nullptr;
  if (with_indices ? map.by_column() : plan.two_by_two()) return nullptr;
  std::optional<PoolTiles> tiles = CutPool(plan, with_indices);
  if (!tiles.has_value()) return nullptr;
  if (!with_indices) return MakeTiledMax(*std::move(tiles), context.threads());
  return MakeTiledMaxWithIndices(*std::move(tiles), map, context.threads());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxPool(const PrepareContext& context) {
  if (context.InputShape(0).rank() > 5) return PrepareGeneralMaxPool(context);
  WEFT_ASSIGN_OR_RETURN(const PoolPlan plan,
                        PlanPool(context, context.InputShape(0), context.OutputShape(0)));
  const IndexMap map(context, plan);
  const bool with_indices = context.HasOutput(1);
  const int threads = context.threads();
  if (auto kernel = MakeVectorMax(context, plan, map)) return kernel;
  const double nanoseconds = static_cast<double>(plan.plane_output() * plan.window());
  return PrepareByDType(
      context, context.InputDType(0), PoolTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          const T* x = Input<T>(run, 0);
          T* y = Output<T>(run, 0);
          ParallelFor(threads, plan.planes, nanoseconds, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const T* plane = x + i * plan.plane_input();
              T* out = y + i * plan.plane_output();
              if (!with_indices) {
                MaxOfPlane(plan, plane, out);
                continue;
              }
              MaxOfPlaneWithIndices(plan, map, map.Base(i), plane, out,
                                    Output<int64_t>(run, 1) + i * plan.plane_output());
            }
          });
          return absl::OkStatus();
        });
      });
}

// ---- Gradient.

template <typename T>
void GradientOfPlane(const PoolPlan& plan, const T* x, const T* y, const T* dy, T* dx) {
  if constexpr (std::is_same_v<T, float>) {
    if (plan.two_by_two()) {
      const bool covered = plan.plane_input() == 4 * plan.plane_output();
      if (!covered) std::fill_n(dx, plan.plane_input(), 0.0f);
      return MaxOfTwoByTwoGradient(TwoByTwo(plan), x, y, dy, dx);
    }
  }
  std::fill_n(dx, plan.plane_input(), Store<T>(0));
  ForEachWindow(plan, [&](const PoolWindow& window) {
    int64_t where = -1;
    ForEachInside(plan, window, [&](int64_t position) {
      where = position;  // the last one when none equals
      return !(Load(x[position]) == Load(*y));
    });
    if (where >= 0) dx[where] = Store<T>(Load(dx[where]) + Load(*dy));
    ++y;
    ++dy;
  });
}

// Rows of the input a task. All of them where windows span slices.
int64_t GradientRows(const PoolTiles& tiles) {
  const auto& axes = tiles.plan.axes;
  const int64_t all = axes[0].input * axes[1].input;
  return axes[0].input > 1 ? all : std::min(all, tiles.cut.rows * axes[1].stride);
}

std::unique_ptr<Kernel> MakeTiledMaxGradient(PoolTiles tiles, int threads) {
  const size_t bytes = tiles.bytes;
  const int64_t all_rows = tiles.plan.axes[0].input * tiles.plan.axes[1].input;
  const int64_t rows = GradientRows(tiles);
  const int64_t parts = TileCut::Parts(all_rows, rows);
  const double nanoseconds = 2 * tiles.nanoseconds() * static_cast<double>(tiles.cut.per_plane()) /
                                 static_cast<double>(parts) +
                             static_cast<double>(tiles.plan.plane_output() / parts);
  return MakeKernel(
      [=, tiles = std::move(tiles)](const KernelContext& run) {
        ParallelForSlots(threads, tiles.plan.planes * parts, nanoseconds, 1,
                         [&](int slot, int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             const int64_t first = i % parts * rows;
                             MaxGradientOfRows(
                                 tiles, i / parts, first, std::min(first + rows, all_rows),
                                 Input<float>(run, 0), Input<float>(run, 1), Input<float>(run, 2),
                                 Output<float>(run, 0), At(run.workspace, slot * bytes));
                           }
                         });
        return absl::OkStatus();
      },
      bytes * threads);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxPoolGradient(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolPlan plan,
                        PlanPool(context, context.InputShape(0), context.InputShape(1)));
  if (!(context.InputShape(2) == context.InputShape(1))) {
    return context.InvalidArgument("Y and dY must have the same shape");
  }
  const int threads = context.threads();
  if (context.InputDType(0) == DType::kFloat32 && !plan.two_by_two()) {
    std::optional<PoolTiles> tiles = CutPool(plan, /*with_positions=*/true);
    if (tiles.has_value()) return MakeTiledMaxGradient(*std::move(tiles), threads);
  }
  const double nanoseconds = static_cast<double>(plan.plane_output() * plan.window());
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          ParallelFor(threads, plan.planes, nanoseconds, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const T* x = Input<T>(run, 0) + i * plan.plane_input();
              const T* y = Input<T>(run, 1) + i * plan.plane_output();
              const T* dy = Input<T>(run, 2) + i * plan.plane_output();
              T* dx = Output<T>(run, 0) + i * plan.plane_input();
              GradientOfPlane(plan, x, y, dy, dx);
            }
          });
          return absl::OkStatus();
        });
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "MaxPool", DeviceKind::kCpu, Widened(PrepareMaxPool));
WEFT_REGISTER_KERNEL("ai.weft", "MaxPoolGrad", DeviceKind::kCpu, Widened(PrepareMaxPoolGradient));

}  // namespace weft::cpu
