#include "ops/kernels/cuda/random/places.h"

#include <vector>

#include "ops/kernels/cuda/blocks/broadcast_plan.h"

namespace weft::cuda {

absl::StatusOr<PlaceMap> PlacesOf(const PrepareContext& context, const Shape& shape,
                                  const OperandSlice& slice) {
  PlaceMap places;
  std::vector<BroadcastPlan::Axis> axes(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    axes[static_cast<size_t>(d)] = {shape.dim(d), {stride}};
    places.first += slice.offset[static_cast<size_t>(d)] * stride;
    stride *= slice.global_shape.dim(d);
  }
  const BroadcastPlan plan = BroadcastPlan::OfStrides(axes, 1);
  if (plan.elements == 0) return places;
  if (plan.axes.size() > kMaxBroadcastAxes) {
    return context.Unimplemented("the tensor is cut along too many axes");
  }
  places.wide = plan.Map<1, int64_t>();
  places.fits_narrow = plan.elements < kPieceLimit && plan.Reach(0) < kPieceLimit;
  if (places.fits_narrow) places.narrow = plan.Map<1>();
  places.has_fours =
      plan.axes[0].strides[0] <= 1 && (plan.axes.size() == 1 || plan.axes[0].size % 4 == 0);
  return places;
}

StepKey StepKeyOf(const RandomKey& node, const KernelContext& run) {
  const bool is_on_device = run.step_on_device != nullptr;
  const RandomKey key = is_on_device ? node : node.Fold(static_cast<uint64_t>(run.step));
  return {{{key.words()[0], key.words()[1]}}, run.step_on_device};
}

}  // namespace weft::cuda
