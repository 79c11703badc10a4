// RoiAlign and MaxRoiPool.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/image/roi_region.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using RoiTypes = TypeList<float, double>;

// The mean of the samples of one output element; with `max` the largest weighted element.
template <typename T>
T AlignElement(const RoiPlan& plan, const AlignedRegion& region, int64_t ph, int64_t pw,
               const T* x) {
  double sum = 0;
  double largest = 0;
  bool any = false;
  for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
    PixelPair row;
    const bool row_inside = FindPixels(region.Position(0, ph, iy), plan.height, row);
    for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
      PixelPair column;
      double parts[4] = {0, 0, 0, 0};
      if (row_inside && FindPixels(region.Position(1, pw, ix), plan.width, column)) {
        const T* const above = x + row.low * plan.width;
        const T* const below = x + row.high * plan.width;
        parts[0] = (1 - row.share) * (1 - column.share) * static_cast<double>(above[column.low]);
        parts[1] = (1 - row.share) * column.share * static_cast<double>(above[column.high]);
        parts[2] = row.share * (1 - column.share) * static_cast<double>(below[column.low]);
        parts[3] = row.share * column.share * static_cast<double>(below[column.high]);
      }
      sum += parts[0] + parts[1] + parts[2] + parts[3];
      const double best = std::max({parts[0], parts[1], parts[2], parts[3]});
      largest = any ? std::max(largest, best) : best;
      any = true;
    }
  }
  if (plan.max) return static_cast<T>(largest);
  const int64_t count = std::max<int64_t>(region.grid[0] * region.grid[1], 1);
  return static_cast<T>(sum / static_cast<double>(count));
}

template <typename T>
absl::Status AlignAll(const RoiPlan& plan, const KernelContext& run) {
  const int64_t* batch = Input<int64_t>(run, 2);
  for (int64_t r = 0; r < plan.rois; ++r) {
    if (batch[r] < 0 || batch[r] >= plan.batch) {
      return absl::InvalidArgumentError(absl::StrCat("node '", plan.name,
                                                     "' (RoiAlign): batch_indices[", r, "] is ",
                                                     batch[r], ", X has ", plan.batch, " samples"));
    }
    WEFT_ASSIGN_OR_RETURN(const AlignedRegion region,
                          AlignRegion(plan, Input<T>(run, 1) + 4 * r, r));
    const double nanoseconds = 10.0 * static_cast<double>(plan.pooled() * region.grid[0]) *
                               static_cast<double>(region.grid[1]);
    ParallelFor(plan.threads, plan.channels, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const T* x = Input<T>(run, 0) + (batch[r] * plan.channels + c) * plan.plane();
        T* y = Output<T>(run, 0) + (r * plan.channels + c) * plan.pooled();
        for (int64_t i = 0; i < plan.pooled(); ++i) {
          y[i] = AlignElement(plan, region, i / plan.pooled_width, i % plan.pooled_width, x);
        }
      }
    });
  }
  return absl::OkStatus();
}

absl::Status CheckImage(const PrepareContext& context, const RoiPlan& plan) {
  if (plan.plane() > 0 || plan.rois * plan.channels == 0) return absl::OkStatus();
  return context.InvalidArgument("X has no elements to pool");
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRoiAlign(const PrepareContext& context) {
  const RoiPlan plan = MakeRoiPlan(context, context.InputShape(0), context.OutputShape(0));
  WEFT_RETURN_IF_ERROR(CheckImage(context, plan));
  return PrepareByDType(
      context, context.InputDType(0), RoiTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) { return AlignAll<T>(plan, run); });
      });
}

// ---- MaxRoiPool.

template <typename T>
T LargestIn(const RoiPlan& plan, const T* x, const PixelRange& rows, const PixelRange& columns) {
  T best = 0;  // of nothing
  bool any = false;
  for (int64_t h = rows.first; h < rows.last; ++h) {
    for (int64_t w = columns.first; w < columns.last; ++w) {
      const T candidate = x[h * plan.width + w];
      if (!any || candidate > best || candidate != candidate) best = candidate;
      any = true;
    }
  }
  return best;
}

// The sample of a region and its pixels.
struct PooledRegion {
  int64_t n;
  PooledAxis axes[2];  // y, x

  PixelRange Rows(const RoiPlan& plan, int64_t i) const {
    return PixelsOf(axes[0], i / plan.pooled_width, plan.height);
  }
  PixelRange Columns(const RoiPlan& plan, int64_t i) const {
    return PixelsOf(axes[1], i % plan.pooled_width, plan.width);
  }
};

template <typename T>
absl::StatusOr<PooledRegion> RegionOf(const RoiPlan& plan, const T* rois, int64_t r) {
  const T* const roi = rois + 5 * r;
  for (int i = 1; i <= 4; ++i) {
    const double corner = static_cast<double>(roi[i]) * plan.spec.scale;
    if (std::abs(corner) < kMaxRoiStart) continue;
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (", plan.op, "): rois[",
                                                   r, "] has a corner at ", corner));
  }
  const double sample = static_cast<double>(roi[0]);
  if (!(sample >= 0 && sample < static_cast<double>(plan.batch))) {
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (", plan.op, "): rois[",
                                                   r, "] is of sample ", sample, ", X has ",
                                                   plan.batch));
  }
  PooledRegion region;
  region.n = static_cast<int64_t>(sample);
  for (int axis = 0; axis < 2; ++axis) {
    region.axes[axis] = PoolAxis(plan.spec, axis, static_cast<double>(roi[2 - axis]),
                                 static_cast<double>(roi[4 - axis]));
  }
  return region;
}

template <typename T>
absl::Status PoolRegion(const RoiPlan& plan, const KernelContext& run, int64_t r) {
  WEFT_ASSIGN_OR_RETURN(const PooledRegion region, RegionOf(plan, Input<T>(run, 1), r));
  ParallelFor(plan.threads, plan.channels, 10.0 * static_cast<double>(plan.pooled()), 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  const T* x = Input<T>(run, 0) + (region.n * plan.channels + c) * plan.plane();
                  T* y = Output<T>(run, 0) + (r * plan.channels + c) * plan.pooled();
                  for (int64_t i = 0; i < plan.pooled(); ++i) {
                    y[i] = LargestIn(plan, x, region.Rows(plan, i), region.Columns(plan, i));
                  }
                }
              });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxRoiPool(const PrepareContext& context) {
  const RoiPlan plan = MakeRoiPlan(context, context.InputShape(0), context.OutputShape(0));
  return PrepareByDType(context, context.InputDType(0), RoiTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan](const KernelContext& run) -> absl::Status {
                            for (int64_t r = 0; r < plan.rois; ++r) {
                              WEFT_RETURN_IF_ERROR(PoolRegion<T>(plan, run, r));
                            }
                            return absl::OkStatus();
                          });
                        });
}

// ---- MaxRoiPoolGrad(dY, X, rois) -> dX: each dY goes to the first pixel of its bin that is
// largest.

// The offset of that pixel, -1 in an empty bin.
template <typename T>
int64_t PlaceOfLargest(const RoiPlan& plan, const T* x, const PixelRange& rows,
                       const PixelRange& columns) {
  int64_t best = -1;
  for (int64_t h = rows.first; h < rows.last; ++h) {
    for (int64_t w = columns.first; w < columns.last; ++w) {
      const int64_t at = h * plan.width + w;
      if (best < 0 || x[at] > x[best]) best = at;
    }
  }
  return best;
}

template <typename T>
absl::Status RunMaxRoiPoolGrad(const RoiPlan& plan, const KernelContext& run) {
  T* const dx = Output<T>(run, 0);
  std::fill_n(dx, plan.batch * plan.channels * plan.plane(), T(0));
  for (int64_t r = 0; r < plan.rois; ++r) {
    WEFT_ASSIGN_OR_RETURN(const PooledRegion region, RegionOf(plan, Input<T>(run, 2), r));
    ParallelFor(plan.threads, plan.channels, 10.0 * static_cast<double>(plan.pooled()), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t c = begin; c < end; ++c) {
                    const int64_t image = (region.n * plan.channels + c) * plan.plane();
                    const T* dy = Input<T>(run, 0) + (r * plan.channels + c) * plan.pooled();
                    for (int64_t i = 0; i < plan.pooled(); ++i) {
                      const int64_t at =
                          PlaceOfLargest(plan, Input<T>(run, 1) + image, region.Rows(plan, i),
                                         region.Columns(plan, i));
                      if (at >= 0) dx[image + at] += dy[i];
                    }
                  }
                });
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxRoiPoolGrad(const PrepareContext& context) {
  const RoiPlan plan = MakeRoiPlan(context, context.InputShape(1), context.InputShape(0));
  return PrepareByDType(context, context.InputDType(0), RoiTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan](const KernelContext& run) {
                            return RunMaxRoiPoolGrad<T>(plan, run);
                          });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "RoiAlign", DeviceKind::kCpu, Widened(PrepareRoiAlign));
WEFT_REGISTER_KERNEL("", "MaxRoiPool", DeviceKind::kCpu, Widened(PrepareMaxRoiPool));
WEFT_REGISTER_KERNEL("ai.weft", "MaxRoiPoolGrad", DeviceKind::kCpu, Widened(PrepareMaxRoiPoolGrad));

}  // namespace weft::cpu
