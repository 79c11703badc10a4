// Where GridSample samples: the elements of an image that a point of the grid is the weighted sum
// of, over all axes.
#ifndef WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_
#define WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "ops/defs/image/grid_axis.h"
#include "ops/defs/image/sampling_attributes.h"
#include "ops/kernel.h"

namespace weft::cpu {

inline constexpr int kMaxTaps = 256;  // four image axes with cubic weights

// The sizes and options of one GridSample node, computed when its kernel is prepared.
struct GridPlan {
  GridAxis options;            // without a size
  std::vector<int64_t> image;  // sizes of X's image axes
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t input = 1;   // elements of X's image
  int64_t output = 1;  // of Y's
  int threads = 1;

  int axes() const { return static_cast<int>(image.size()); }
  int taps_per_axis() const { return TapsPerAxis(options.mode); }
};

// The elements of an image that one output is the weighted sum of.
template <typename G>
struct Taps {
  int count = 0;
  std::array<int64_t, kMaxTaps> offsets;
  std::array<G, kMaxTaps> weights;
};

// `point`: normalized coordinates, those of the last axis first. With `slope_axis` the weights are
// their derivatives by the coordinate of this axis.
template <typename G>
void CollectTaps(const GridPlan& plan, const G* point, Taps<G>& taps, int slope_axis = -1) {
  taps.count = 1;
  taps.offsets[0] = 0;
  taps.weights[0] = 1;
  const int per_axis = plan.taps_per_axis();
  for (int axis = 0; axis < plan.axes(); ++axis) {
    GridAxis along = plan.options;
    along.size = plan.image[axis];
    const AxisTaps<G> own = SampleAxis<G>(along, point[plan.axes() - 1 - axis]);
    // From the last to the first, each is replaced by its products, which never overtake it.
    for (int i = taps.count - 1; i >= 0; --i) {
      const int64_t offset = taps.offsets[i];
      const G weight = taps.weights[i];
      for (int k = per_axis - 1; k >= 0; --k) {
        const bool inside = offset >= 0 && own.indices[k] >= 0;
        taps.offsets[i * per_axis + k] = inside ? offset * plan.image[axis] + own.indices[k] : -1;
        taps.weights[i * per_axis + k] =
            weight * (axis == slope_axis ? own.slopes[k] : own.weights[k]);
      }
    }
    taps.count *= per_axis;
  }
}

// From X [batch, channels, image...] and Y's shape.
inline GridPlan MakeGridPlan(const PrepareContext& context, const Shape& x, const Shape& y) {
  GridPlan plan;
  plan.options = ReadGridOptions(context.attributes());
  plan.batch = x.dim(0);
  plan.channels = x.dim(1);
  for (int i = 2; i < x.rank(); ++i) plan.image.push_back(x.dim(i));
  plan.input = x.ProductOf(2, x.rank());
  plan.output = y.ProductOf(2, y.rank());
  plan.threads = context.threads();
  return plan;
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_
