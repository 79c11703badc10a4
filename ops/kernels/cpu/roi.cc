// RoiAlign and MaxRoiPool.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "ops/kernels/cpu/widened.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using RoiTypes = TypeList<float, double>;

struct RoiPlan {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t rois = 0;
  int64_t pooled_height = 0;
  int64_t pooled_width = 0;
  double scale = 1;
  int64_t sampling_ratio = 0;
  bool half_pixel = true;
  bool max = false;
  int threads = 1;
  std::string name;

  int64_t plane() const { return height * width; }
  int64_t pooled() const { return pooled_height * pooled_width; }
};

RoiPlan PlanOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  const Attributes& attributes = context.attributes();
  RoiPlan plan;
  plan.batch = x.dim(0);
  plan.channels = x.dim(1);
  plan.height = x.dim(2);
  plan.width = x.dim(3);
  plan.rois = y.dim(0);
  plan.pooled_height = y.dim(2);
  plan.pooled_width = y.dim(3);
  plan.scale = attributes.Float("spatial_scale", 1.0f);
  plan.sampling_ratio = attributes.Int("sampling_ratio", 0);
  plan.half_pixel =
      attributes.String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  plan.max = attributes.String("mode", "avg") == "max";
  plan.threads = context.threads();
  plan.name = context.node().name;
  return plan;
}

// ---- RoiAlign.

// Where the samples of one region lie.
struct AlignedRegion {
  double start[2];  // of the region: y, x
  double bin[2];    // size of an output element
  int64_t grid[2];  // samples along it
};

constexpr int64_t kMostSamples = 1 << 14;  // along one axis of one output element

template <typename T>
absl::StatusOr<AlignedRegion> AlignRegion(const RoiPlan& plan, const T* roi, int64_t index) {
  const double offset = plan.half_pixel ? 0.5 : 0.0;
  const int64_t pooled[] = {plan.pooled_height, plan.pooled_width};
  AlignedRegion region;
  for (int axis = 0; axis < 2; ++axis) {
    const int at = 1 - axis;  // rois hold x1, y1, x2, y2
    const double start = static_cast<double>(roi[at]) * plan.scale - offset;
    double extent = static_cast<double>(roi[at + 2]) * plan.scale - offset - start;
    if (!plan.half_pixel) extent = std::max(extent, 1.0);
    region.start[axis] = start;
    region.bin[axis] = extent / static_cast<double>(pooled[axis]);
    const double grid = plan.sampling_ratio > 0 ? static_cast<double>(plan.sampling_ratio)
                                                : std::ceil(region.bin[axis]);
    if (!(std::abs(start) < 1e15) || !(grid <= static_cast<double>(kMostSamples))) {
      return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (RoiAlign): rois[",
                                                     index, "] spans ", extent, " pixels from ",
                                                     start, " on"));
    }
    region.grid[axis] = std::max<int64_t>(static_cast<int64_t>(grid), 0);
  }
  return region;
}

// Along one axis: the two elements beside `position` and the share of the second; false: outside.
struct Neighbours {
  int64_t low = 0;
  int64_t high = 0;
  double share = 0;
};
bool Locate(double position, int64_t size, Neighbours& found) {
  if (position < -1.0 || position > static_cast<double>(size)) return false;
  const double inside = std::max(position, 0.0);
  found.low = static_cast<int64_t>(inside);
  if (found.low >= size - 1) {
    found = {size - 1, size - 1, 0};
  } else {
    found.high = found.low + 1;
    found.share = inside - static_cast<double>(found.low);
  }
  return true;
}

// The mean of the samples of one output element; with `max` the largest weighted element.
template <typename T>
T AlignElement(const RoiPlan& plan, const AlignedRegion& region, int64_t ph, int64_t pw,
               const T* x) {
  double sum = 0;
  double largest = 0;
  bool any = false;
  const auto position = [&](int axis, int64_t output, int64_t sample) {
    return region.start[axis] + static_cast<double>(output) * region.bin[axis] +
           (static_cast<double>(sample) + 0.5) * region.bin[axis] /
               static_cast<double>(region.grid[axis]);
  };
  for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
    Neighbours row;
    const bool row_inside = Locate(position(0, ph, iy), plan.height, row);
    for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
      Neighbours column;
      double parts[4] = {0, 0, 0, 0};
      if (row_inside && Locate(position(1, pw, ix), plan.width, column)) {
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
  const RoiPlan plan = PlanOf(context);
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

template <typename T>
absl::Status PoolRegion(const RoiPlan& plan, const KernelContext& run, int64_t r) {
  const T* roi = Input<T>(run, 1) + 5 * r;
  double corners[4];
  for (int i = 0; i < 4; ++i) {
    corners[i] = std::round(static_cast<double>(roi[i + 1]) * plan.scale);
    if (std::abs(corners[i]) < 1e15) continue;
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (MaxRoiPool): rois[", r,
                                                   "] has a corner at ", corners[i]));
  }
  const double sample = static_cast<double>(roi[0]);
  if (!(sample >= 0 && sample < static_cast<double>(plan.batch))) {
    return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (MaxRoiPool): rois[", r,
                                                   "] is of sample ", sample, ", X has ",
                                                   plan.batch));
  }
  const double bin_height =
      std::max(corners[3] - corners[1] + 1, 1.0) / static_cast<double>(plan.pooled_height);
  const double bin_width =
      std::max(corners[2] - corners[0] + 1, 1.0) / static_cast<double>(plan.pooled_width);
  const int64_t n = static_cast<int64_t>(sample);
  ParallelFor(plan.threads, plan.channels, 10.0 * static_cast<double>(plan.pooled()), 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  const T* x = Input<T>(run, 0) + (n * plan.channels + c) * plan.plane();
                  T* y = Output<T>(run, 0) + (r * plan.channels + c) * plan.pooled();
                  for (int64_t i = 0; i < plan.pooled(); ++i) {
                    y[i] = LargestIn(plan, x,
                                     BinOf(static_cast<int64_t>(corners[1]), bin_height,
                                           i / plan.pooled_width, plan.height),
                                     BinOf(static_cast<int64_t>(corners[0]), bin_width,
                                           i % plan.pooled_width, plan.width));
                  }
                }
              });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxRoiPool(const PrepareContext& context) {
  const RoiPlan plan = PlanOf(context);
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

}  // namespace

WEFT_REGISTER_KERNEL("", "RoiAlign", DeviceKind::kCpu, Widened(PrepareRoiAlign));
WEFT_REGISTER_KERNEL("", "MaxRoiPool", DeviceKind::kCpu, Widened(PrepareMaxRoiPool));

}  // namespace weft::cpu
