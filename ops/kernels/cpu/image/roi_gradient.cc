// RoiAlignGrad(dY, X, rois, batch_indices) -> dX, drois.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/image/roi_region.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// One sample of an output element: its four pixels, their weights, and the slopes of the weights
// along the axes.
struct Sample {
  int64_t pixels[4];
  double weights[4];
  double slopes[2][4];  // by y, by x
  double bins[2];       // from the region's start

  // Which pixel's weighted value is largest: the first of equal ones, as in the forward pass.
  template <typename T>
  int Largest(const T* x) const {
    int best = 0;
    for (int k = 1; k < 4; ++k) {
      if (Part(x, k) > Part(x, best)) best = k;
    }
    return best;
  }
  template <typename T>
  double Part(const T* x, int k) const {
    return weights[k] * static_cast<double>(x[pixels[k]]);
  }
};

void SetPixels(const RoiPlan& plan, const PixelPair& row, const PixelPair& column, Sample& sample) {
  const int64_t rows[] = {row.low, row.high};
  const int64_t columns[] = {column.low, column.high};
  const double row_weights[] = {1 - row.share, row.share};
  const double column_weights[] = {1 - column.share, column.share};
  for (int k = 0; k < 4; ++k) {
    sample.pixels[k] = rows[k / 2] * plan.width + columns[k % 2];
    sample.weights[k] = row_weights[k / 2] * column_weights[k % 2];
    sample.slopes[0][k] = (k / 2 == 0 ? -row.slope : row.slope) * column_weights[k % 2];
    sample.slopes[1][k] = (k % 2 == 0 ? -column.slope : column.slope) * row_weights[k / 2];
  }
}

// Calls fn(Sample) for the samples of output element `i` that lie in the image.
template <typename Fn>
void ForEachSample(const RoiPlan& plan, const AlignedRegion& region, int64_t i, Fn fn) {
  const int64_t outputs[] = {i / plan.pooled_width, i % plan.pooled_width};
  for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
    PixelPair row;
    if (!FindPixels(region.Position(0, outputs[0], iy), plan.height, row)) continue;
    for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
      PixelPair column;
      if (!FindPixels(region.Position(1, outputs[1], ix), plan.width, column)) continue;
      Sample sample;
      SetPixels(plan, row, column, sample);
      sample.bins[0] = region.Bins(0, outputs[0], iy);
      sample.bins[1] = region.Bins(1, outputs[1], ix);
      fn(sample);
    }
  }
}

double SampleCount(const AlignedRegion& region) {
  return static_cast<double>(std::max<int64_t>(region.grid[0] * region.grid[1], 1));
}

// The largest of all weighted pixels of output element `i`: in mode max it alone is the result.
// False where no sample lies in the image, or one outside of it (which is zero) is larger.
template <typename T>
bool FindLargest(const RoiPlan& plan, const AlignedRegion& region, int64_t i, const T* x,
                 Sample& largest, int& pixel) {
  bool any = false;
  int64_t inside = 0;
  ForEachSample(plan, region, i, [&](const Sample& sample) {
    const int k = sample.Largest(x);
    ++inside;
    if (any && !(sample.Part(x, k) > largest.Part(x, pixel))) return;
    largest = sample;
    pixel = k;
    any = true;
  });
  const bool outside = inside < region.grid[0] * region.grid[1];
  return any && !(outside && largest.Part(x, pixel) < 0);
}

// Adds what output element `i` gives to the pixels of one channel.
template <typename T>
void SpreadElement(const RoiPlan& plan, const AlignedRegion& region, int64_t i, double dy,
                   const T* x, T* dx) {
  if (plan.max) {
    Sample sample;
    int k = 0;
    if (FindLargest(plan, region, i, x, sample, k)) {
      dx[sample.pixels[k]] += static_cast<T>(dy * sample.weights[k]);
    }
    return;
  }
  const double share = dy / SampleCount(region);
  ForEachSample(plan, region, i, [&](const Sample& sample) {
    for (int k = 0; k < 4; ++k) {
      dx[sample.pixels[k]] += static_cast<T>(share * sample.weights[k]);
    }
  });
}

// Adds what a sample moved by its region's corners gives: a corner moves the start, and the samples
// behind it by their share of the region.
void AddToCorners(const RoiPlan& plan, const AlignedRegion& region, const Sample& sample,
                  const double* slopes, double* corners) {
  const int64_t pooled[] = {plan.pooled_height, plan.pooled_width};
  for (int axis = 0; axis < 2; ++axis) {
    const double along =
        region.fixed[axis] ? 0.0 : sample.bins[axis] / static_cast<double>(pooled[axis]);
    corners[1 - axis] += slopes[axis] * plan.spec.scale * (1 - along);
    corners[3 - axis] += slopes[axis] * plan.spec.scale * along;
  }
}

// Adds what output element `i` of one channel gives to the corners of its region.
template <typename T>
void MoveElement(const RoiPlan& plan, const AlignedRegion& region, int64_t i, double dy, const T* x,
                 double* corners) {
  const auto add = [&](const Sample& sample, int first, int last, double share) {
    double slopes[2] = {0, 0};
    for (int k = first; k < last; ++k) {
      for (int axis = 0; axis < 2; ++axis) {
        slopes[axis] += share * sample.slopes[axis][k] * static_cast<double>(x[sample.pixels[k]]);
      }
    }
    AddToCorners(plan, region, sample, slopes, corners);
  };
  if (plan.max) {
    Sample sample;
    int k = 0;
    if (FindLargest(plan, region, i, x, sample, k)) add(sample, k, k + 1, dy);
    return;
  }
  const double share = dy / SampleCount(region);
  ForEachSample(plan, region, i, [&](const Sample& sample) { add(sample, 0, 4, share); });
}

template <typename T>
class RoiAlignGrad {
 public:
  RoiAlignGrad(const RoiPlan& plan, const KernelContext& run) : plan_(plan), run_(run) {}

  absl::Status Run(bool image, bool rois) const {
    if (image) std::fill_n(Output<T>(run_, 0), plan_.batch * plan_.channels * plan_.plane(), T(0));
    const int64_t* const batch = Input<int64_t>(run_, 3);
    for (int64_t r = 0; r < plan_.rois; ++r) {
      if (batch[r] < 0 || batch[r] >= plan_.batch) {
        return absl::InvalidArgumentError(absl::StrCat("node '", plan_.name, "' (", plan_.op,
                                                       "): batch_indices[", r, "] is ", batch[r],
                                                       ", X has ", plan_.batch, " samples"));
      }
      WEFT_ASSIGN_OR_RETURN(const AlignedRegion region,
                            AlignRegion(plan_, Input<T>(run_, 2) + 4 * r, r));
      if (image) SpreadRegion(region, r, batch[r]);
      if (rois) MoveRegion(region, r, batch[r]);
    }
    return absl::OkStatus();
  }

 private:
  const T* ImageOf(int64_t n, int64_t c) const {
    return Input<T>(run_, 1) + (n * plan_.channels + c) * plan_.plane();
  }
  double GradientOf(int64_t r, int64_t c, int64_t i) const {
    return static_cast<double>(Input<T>(run_, 0)[(r * plan_.channels + c) * plan_.pooled() + i]);
  }

  void SpreadRegion(const AlignedRegion& region, int64_t r, int64_t n) const {
    const double nanoseconds = 20.0 * static_cast<double>(plan_.pooled()) * SampleCount(region);
    ParallelFor(plan_.threads, plan_.channels, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        T* const dx = Output<T>(run_, 0) + (n * plan_.channels + c) * plan_.plane();
        for (int64_t i = 0; i < plan_.pooled(); ++i) {
          SpreadElement(plan_, region, i, GradientOf(r, c, i), ImageOf(n, c), dx);
        }
      }
    });
  }

  void MoveRegion(const AlignedRegion& region, int64_t r, int64_t n) const {
    double corners[4] = {0, 0, 0, 0};
    for (int64_t c = 0; c < plan_.channels; ++c) {
      for (int64_t i = 0; i < plan_.pooled(); ++i) {
        MoveElement(plan_, region, i, GradientOf(r, c, i), ImageOf(n, c), corners);
      }
    }
    for (int i = 0; i < 4; ++i) Output<T>(run_, 1)[4 * r + i] = static_cast<T>(corners[i]);
  }

  const RoiPlan& plan_;
  const KernelContext& run_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRoiAlignGrad(const PrepareContext& context) {
  const RoiPlan plan = MakeRoiPlan(context, context.InputShape(1), context.InputShape(0));
  if (plan.plane() == 0 && plan.rois * plan.channels > 0) {
    return context.InvalidArgument("X has no elements to pool");
  }
  const bool image = context.HasOutput(0);
  const bool rois = context.HasOutput(1);
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan, image, rois](const KernelContext& run) {
                            return RoiAlignGrad<T>(plan, run).Run(image, rois);
                          });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("ai.weft", "RoiAlignGrad", DeviceKind::kCpu, Widened(PrepareRoiAlignGrad));

}  // namespace weft::cpu
