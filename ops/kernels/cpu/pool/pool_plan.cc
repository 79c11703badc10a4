#include "ops/kernels/cpu/pool/pool_plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft::cpu {

absl::StatusOr<PoolPlan> PlanPool(const PrepareContext& context, const Shape& x, const Shape& y) {
  if (x.rank() > 5) return context.Unimplemented("a pool has at most three image axes");
  const auto window =
      WindowSpec::Create(context.attributes(), context.attributes().Ints("kernel_shape"));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  Shape expected{x.dim(0), x.dim(1)};
  for (const WindowAxis& axis : *axes) expected.AddDim(axis.output);
  if (!(expected == y)) {
    return context.InvalidArgument(absl::StrCat("a pool of ", x.ToString(), " gives ",
                                                expected.ToString(), ", not ", y.ToString()));
  }
  PoolPlan plan;
  plan.planes = x.dim(0) * x.dim(1);
  plan.axes.fill(WindowAxis{.input = 1, .output = 1});
  for (size_t i = 0; i < axes->size(); ++i) plan.axes[3 - axes->size() + i] = (*axes)[i];
  return plan;
}

}  // namespace weft::cpu
