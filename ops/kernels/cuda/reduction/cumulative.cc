// CumSum, CumProd and CumProdGrad. The axis is an operand, which may be computed: kernels read it.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/reduction/cumulative_launch.h"

namespace weft::cuda {
namespace {

// Of a node whose input `axis_input` is the axis. Pointers are set when it runs.
CumulativePlan CumulativePlanOf(const PrepareContext& context, const Shape& shape, int axis_input) {
  CumulativePlan plan;
  plan.rank = std::max(shape.rank(), 1);
  plan.sizes[0] = 1;
  plan.strides[0] = 1;
  plan.elements = shape.num_elements();
  plan.smallest_size = std::max<int64_t>(plan.elements, 1);
  for (int d = 0; d < shape.rank(); ++d) {
    plan.sizes[d] = shape.dim(d);
    plan.strides[d] = std::max<int64_t>(shape.ProductOf(d + 1, shape.rank()), 1);
    plan.smallest_size = std::min(plan.smallest_size, std::max<int64_t>(shape.dim(d), 1));
  }
  plan.axis.wide = context.InputDType(axis_input) == DType::kInt64;
  plan.report.low = -plan.rank;
  plan.report.high = plan.rank;
  plan.exclusive = context.attributes().Int("exclusive", 0) != 0 ? 1 : 0;
  plan.reverse = context.attributes().Int("reverse", 0) != 0 ? 1 : 0;
  return plan;
}

std::string SourceOfAxis(const PrepareContext& context) {
  return absl::StrCat(context.node().op, " '", context.node().name, "': axis");
}

CumulativePlan WithPointers(CumulativePlan plan, const KernelContext& run, int axis_input,
                            const std::string& source) {
  plan.axis.data = run.inputs[axis_input];
  plan.report.fault = run.stream->fault();
  plan.report.source = source.c_str();
  return plan;
}

template <bool product>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareCumulative(const PrepareContext& context) {
  const CumulativePlan plan = CumulativePlanOf(context, context.InputShape(0), 1);
  return PrepareByElement(
      context, context.InputDType(0), NumberElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan, source = SourceOfAxis(context)](const KernelContext& run) {
          return LaunchStatus(LaunchCumulative(QueueOf(run), WithPointers(plan, run, 1, source),
                                               product, In<T>(run, 0), Out<T>(run, 0)),
                              product ? "CumProd" : "CumSum");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCumProdGrad(const PrepareContext& context) {
  const CumulativePlan plan = CumulativePlanOf(context, context.InputShape(1), 2);
  return PrepareByElement(
      context, context.InputDType(1), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel(
            [plan, source = SourceOfAxis(context)](const KernelContext& run) {
              return LaunchStatus(
                  LaunchCumulativeGrad(QueueOf(run), WithPointers(plan, run, 2, source),
                                       In<T>(run, 0), In<T>(run, 1), Out<T>(run, 0),
                                       static_cast<double*>(run.workspace)),
                  "CumProdGrad");
            },
            static_cast<size_t>(plan.elements) * sizeof(double));
      });
}

WEFT_REGISTER_KERNEL("", "CumSum", DeviceKind::kCuda, PrepareCumulative<false>);
WEFT_REGISTER_KERNEL("", "CumProd", DeviceKind::kCuda, PrepareCumulative<true>);
WEFT_REGISTER_KERNEL(kWeftDomain, "CumProdGrad", DeviceKind::kCuda, PrepareCumProdGrad);

}  // namespace
}  // namespace weft::cuda
