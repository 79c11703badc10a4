// The geometry of a pool over up to three image axes.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_PLAN_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_PLAN_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/window.h"

namespace weft::cpu {

// A plane is the image of one sample and channel. Missing axes come first, with windows of one.
struct PoolPlan {
  int64_t planes = 0;
  std::array<WindowAxis, 3> axes;  // depth, height, width

  int64_t plane_input() const { return axes[0].input * axes[1].input * axes[2].input; }
  int64_t plane_output() const { return axes[0].output * axes[1].output * axes[2].output; }
  int64_t window() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  // Two image axes, along both of which windows of two lie side by side without padding.
  bool two_by_two() const {
    const auto pairs = [](const WindowAxis& axis) {
      return axis.kernel == 2 && axis.stride == 2 && axis.dilation == 1 && axis.pad_begin == 0 &&
             2 * axis.output <= axis.input;
    };
    return axes[0].kernel == 1 && axes[0].input == 1 && pairs(axes[1]) && pairs(axes[2]);
  }
};

// From the node's attributes; InvalidArgument when x and y do not belong together, Unimplemented
// for more than three image axes.
absl::StatusOr<PoolPlan> PlanPool(const PrepareContext& context, const Shape& x, const Shape& y);

// One window of a plane: its first element and the elements inside the image, per axis.
struct PoolWindow {
  std::array<int64_t, 3> start;
  std::array<int64_t, 3> first;
  std::array<int64_t, 3> last;

  PoolWindow(const PoolPlan& plan, int64_t d, int64_t h, int64_t w) {
    const int64_t outputs[] = {d, h, w};
    for (int i = 0; i < 3; ++i) {
      start[i] = plan.axes[i].Start(outputs[i]);
      first[i] = plan.axes[i].FirstInside(start[i]);
      last[i] = plan.axes[i].LastInside(start[i]);
    }
  }
};

// Calls fn(window) for each output of a plane, in order.
template <typename Fn>
void ForEachWindow(const PoolPlan& plan, Fn fn) {
  for (int64_t d = 0; d < plan.axes[0].output; ++d) {
    for (int64_t h = 0; h < plan.axes[1].output; ++h) {
      for (int64_t w = 0; w < plan.axes[2].output; ++w) fn(PoolWindow(plan, d, h, w));
    }
  }
}

// Calls fn(position in the plane) for each element of the window inside the image, in order, until
// it returns false.
template <typename Fn>
void ForEachInside(const PoolPlan& plan, const PoolWindow& window, Fn fn) {
  for (int64_t d = window.first[0]; d < window.last[0]; ++d) {
    const int64_t depth = window.start[0] + d * plan.axes[0].dilation;
    for (int64_t h = window.first[1]; h < window.last[1]; ++h) {
      const int64_t height = window.start[1] + h * plan.axes[1].dilation;
      const int64_t row = (depth * plan.axes[1].input + height) * plan.axes[2].input;
      for (int64_t w = window.first[2]; w < window.last[2]; ++w) {
        if (!fn(row + window.start[2] + w * plan.axes[2].dilation)) return;
      }
    }
  }
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_PLAN_H_
