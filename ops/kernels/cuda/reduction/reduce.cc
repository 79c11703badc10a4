// The reductions and SumToShape.
#include <string>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/reduction/reduce_axes.h"
#include "ops/kernels/cuda/reduction/reduce_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

template <typename T>
std::unique_ptr<Kernel> MakeReduce(const Shape& shape, const std::vector<bool>& reduced,
                                   ReduceKind kind, const ReduceFinish& finish, std::string name) {
  const int width = std::is_integral_v<T> ? 1 : 16 / static_cast<int>(sizeof(T));
  const FoldPlan plan = FoldPlan::Make(shape, reduced, width);
  return MakeKernel(
      [=, name = std::move(name)](const KernelContext& run) {
        const T* x = In<T>(run, 0);
        T* y = Out<T>(run, 0);
        return LaunchStatus(
            LaunchReduce(QueueOf(run), kind, plan.For({x}), finish, x, y, run.workspace), name);
      },
      plan.workspace_bytes(kReduceTotalBytes));
}

template <typename Types>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareFold(const PrepareContext& context,
                                                    const std::vector<bool>& reduced,
                                                    ReduceKind kind, const ReduceFinish& finish) {
  return PrepareByElement(context, context.InputDType(0), Types(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeReduce<decltype(zero)>(context.InputShape(0), reduced, kind,
                                                              finish, context.node().op);
                          });
}

template <typename Types = NumberElements>
KernelFactory Reduction(ReduceKind kind, FinishKind finish = FinishKind::kDivide) {
  return [=](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
    return PrepareFold<Types>(context, reduced, kind, {finish, 1});
  };
}

// Divides by the global count, so that the results of shards add up.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareMean(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
  const int64_t count = ReducedCount(context.InputSlice(0).global_shape, reduced);
  return PrepareFold<NumberElements>(context, reduced, ReduceKind::kSum,
                                     {FinishKind::kDivide, static_cast<double>(count)});
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSumToShape(const PrepareContext& context) {
  const Shape& from = context.InputShape(0);
  const Shape& to = context.OutputShape(0);
  std::vector<bool> reduced(from.rank());
  for (int d = 0; d < from.rank(); ++d) {
    const int axis = d - (from.rank() - to.rank());
    reduced[d] = axis < 0 || to.dim(axis) != from.dim(d);
  }
  return PrepareFold<NumberElements>(context, reduced, ReduceKind::kSum, {});
}

WEFT_REGISTER_KERNEL("", "ReduceSum", DeviceKind::kCuda, Reduction(ReduceKind::kSum));
WEFT_REGISTER_KERNEL("", "ReduceMean", DeviceKind::kCuda, PrepareMean);
WEFT_REGISTER_KERNEL("", "ReduceMax", DeviceKind::kCuda,
                     Reduction<RealElements>(ReduceKind::kLargest));
WEFT_REGISTER_KERNEL("", "ReduceMin", DeviceKind::kCuda,
                     Reduction<RealElements>(ReduceKind::kSmallest));
WEFT_REGISTER_KERNEL("", "ReduceProd", DeviceKind::kCuda, Reduction(ReduceKind::kProduct));
WEFT_REGISTER_KERNEL("", "ReduceL1", DeviceKind::kCuda, Reduction(ReduceKind::kMagnitudes));
WEFT_REGISTER_KERNEL("", "ReduceL2", DeviceKind::kCuda,
                     Reduction(ReduceKind::kSquares, FinishKind::kRoot));
WEFT_REGISTER_KERNEL("", "ReduceSumSquare", DeviceKind::kCuda, Reduction(ReduceKind::kSquares));
WEFT_REGISTER_KERNEL("", "ReduceLogSum", DeviceKind::kCuda,
                     Reduction(ReduceKind::kSum, FinishKind::kLog));
WEFT_REGISTER_KERNEL("", "ReduceLogSumExp", DeviceKind::kCuda, Reduction(ReduceKind::kLogSumExp));
WEFT_REGISTER_KERNEL(kWeftDomain, "SumToShape", DeviceKind::kCuda, PrepareSumToShape);

}  // namespace
}  // namespace weft::cuda
