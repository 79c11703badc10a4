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
    Neighbours row;
    const bool row_inside = Locate(region.Position(0, ph, iy), plan.height, row);
    for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
      Neighbours column;
      double parts[4] = {0, 0, 0, 0};
      if (row_inside && Locate(region.Position(1, pw, ix), plan.width, column)) {
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

// ---- MaxRoiPool. R. Girshick, Fast R-CNN (2015), section 2.1.

// The pixels of output element `i` along one axis: [first, last).
struct Bin {
  int64_t first;
  int64_t last;
};
Bin BinOf(int64_t start, double size, int64_t i, int64_t limit) {
  const double first = std::floor(static_cast<double>(i) * size);
  const double last = std::ceil(static_cast<double>(i + 1) * size);
  return {std::clamp<int64_t>(static_cast<int64_t>(first) + start, 0, limit),
          std::clamp<int64_t>(static_cast<int64_t>(last) + start, 0, limit)};
}

template <typename T>
T LargestIn(const RoiPlan& plan, const T* x, const Bin& rows, const Bin& columns) {
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
  int64_t start[2];  // y, x
  double bin[2];     // pixels of an output element

  Bin Rows(const RoiPlan& plan, int64_t i) const {
    return BinOf(start[0], bin[0], i / plan.pooled_width, plan.height);
  }
  Bin Columns(const RoiPlan& plan, int64_t i) const {
    return BinOf(start[1], bin[1], i % plan.pooled_width, plan.width);
  }
};

template <typename T>
absl::StatusOr<PooledRegion> RegionOf(const RoiPlan& plan, const T* rois, int64_t r) {
  const T* const roi = rois + 5 * r;
  double corners[4];
  for (int i = 0; i < 4; ++i) {
    corners[i] = std::round(static_cast<double>(roi[i + 1]) * plan.scale);
    if (std::abs(corners[i]) < 1e15) continue;
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (", plan.op, "): rois[",
                                                   r, "] has a corner at ", corners[i]));
  }
  const double sample = static_cast<double>(roi[0]);
  if (!(sample >= 0 && sample < static_cast<double>(plan.batch))) {
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (", plan.op, "): rois[",
                                                   r, "] is of sample ", sample, ", X has ",
                                                   plan.batch));
  }
  PooledRegion region;
  region.n = static_cast<int64_t>(sample);
  const int64_t pooled[] = {plan.pooled_height, plan.pooled_width};
  for (int axis = 0; axis < 2; ++axis) {
    const double first = corners[1 - axis];
    region.start[axis] = static_cast<int64_t>(first);
    region.bin[axis] =
        std::max(corners[3 - axis] - first + 1, 1.0) / static_cast<double>(pooled[axis]);
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
int64_t PlaceOfLargest(const RoiPlan& plan, const T* x, const Bin& rows, const Bin& columns) {
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
