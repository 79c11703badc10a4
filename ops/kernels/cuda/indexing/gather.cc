// Gather, its gradient, and GatherElements.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/kernels/cuda/blocks/broadcast_plan.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/indexing/gather_launch.h"
#include "ops/kernels/cuda/indexing/index_operand.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// A table seen as outer x rows x inner, of which rows are gathered.
struct GatherTable {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t inner = 1;  // elements
};

absl::StatusOr<GatherTable> TableOf(const PrepareContext& context, const Shape& shape) {
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), shape.rank()));
  return GatherTable{shape.ProductOf(0, axis), shape.dim(axis),
                     shape.ProductOf(axis + 1, shape.rank())};
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGather(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const GatherTable table, TableOf(context, context.InputShape(0)));
  const DType index_dtype = context.InputDType(1);
  WEFT_RETURN_IF_ERROR(CheckIndexType(context, index_dtype));
  const int64_t count = context.InputShape(1).num_elements();
  const int64_t row_bytes = table.inner * width;
  return MakeKernel([=, source = IndexSource(context)](const KernelContext& run) {
    const int unit = LargestUnit(row_bytes, run.inputs[0], run.outputs[0]);
    GatherCall call;
    call.table = run.inputs[0];
    call.indices = IndicesOf(run, 1, index_dtype);
    call.y = run.outputs[0];
    call.outer = table.outer;
    call.rows = table.rows;
    call.count = count;
    call.row = row_bytes / unit;
    call.report = ReportOf(run, source, table.rows);
    return LaunchStatus(LaunchGather(QueueOf(run), unit, call), "Gather");
  });
}

// ---- GatherGrad. Indices are put in order, so that those of one row are neighbours.

// Where in the workspace its arrays begin, in bytes.
struct GatherGradPlan {
  IndexSort sort;
  size_t sorted_keys = 0;
  size_t order = 0;
  size_t sort_space = 0;
  size_t named = 0;
  size_t partial = 0;
  size_t total = 0;
};

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

GatherGradPlan PlanGatherGrad(const GatherTable& table, int64_t count, DType dtype) {
  GatherGradPlan plan;
  plan.sort = {count, table.rows + 1};
  plan.order = Aligned(static_cast<size_t>(count) * 4);
  plan.sort_space = plan.order + Aligned(static_cast<size_t>(count) * 4);
  plan.named = plan.sort_space + Aligned(plan.sort.workspace_bytes());
  plan.partial = plan.named + Aligned(static_cast<size_t>(table.rows));
  plan.total = plan.partial + SumRowsBytes(dtype, table.outer, count, table.inner);
  return plan;
}

absl::Status RunGatherGrad(const KernelContext& run, const GatherGradPlan& plan,
                           const GatherTable& table, DType dtype, const RowKeysCall& indices) {
  const LaunchQueue queue = QueueOf(run);
  char* const space = static_cast<char*>(run.workspace);
  auto* const sorted_keys = reinterpret_cast<uint32_t*>(space + plan.sorted_keys);
  auto* const order = reinterpret_cast<uint32_t*>(space + plan.order);
  auto* const named = reinterpret_cast<uint8_t*>(space + plan.named);
  RowKeysCall keys = indices;
  keys.keys = plan.sort.Keys(sorted_keys, space + plan.sort_space);
  keys.named = named;
  WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchRowKeys(queue, keys), "GatherGrad"));
  WEFT_RETURN_IF_ERROR(LaunchStatus(
      plan.sort.Launch(queue, sorted_keys, order, space + plan.sort_space), "GatherGrad"));
  SumRowsCall call;
  call.dy = run.inputs[0];
  call.keys = sorted_keys;
  call.order = order;
  call.partial = space + plan.partial;
  call.named = named;
  call.dx = run.outputs[0];
  call.outer = table.outer;
  call.rows = table.rows;
  call.count = keys.count;
  call.inner = table.inner;
  call.unit = LargestUnit(static_cast<int64_t>(DTypeBytes(dtype, table.inner)), call.dx, call.dx);
  return LaunchStatus(LaunchSumRows(queue, dtype, call), "GatherGrad");
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherGrad(const PrepareContext& context) {
  const Shape& output = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const GatherTable table, TableOf(context, output));
  const DType index_dtype = context.InputDType(1);
  WEFT_RETURN_IF_ERROR(CheckIndexType(context, index_dtype));
  const DType dtype = context.OutputDType(0);
  if (context.InputDType(0) != dtype) {
    return context.Unimplemented("dY must have the type of the table on CUDA devices");
  }
  const int64_t count = context.InputShape(1).num_elements();
  if (count >= int64_t{1} << 31 || table.rows >= (int64_t{1} << 32) - 1) {
    return context.Unimplemented(
        "GatherGrad takes less than 2^31 indices and 2^32 - 1 rows on CUDA devices");
  }
  const GatherGradPlan plan = PlanGatherGrad(table, count, dtype);
  return PrepareByElement(context, dtype, FloatElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel(
                                [=, source = IndexSource(context)](const KernelContext& run) {
                                  RowKeysCall keys;
                                  keys.indices = IndicesOf(run, 1, index_dtype);
                                  keys.rows = table.rows;
                                  keys.count = count;
                                  keys.report = ReportOf(run, source, table.rows);
                                  return RunGatherGrad(run, plan, table, dtype, keys);
                                },
                                plan.total);
                          });
}

// ---- GatherElements

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElements(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const DType index_dtype = context.InputDType(1);
  WEFT_RETURN_IF_ERROR(CheckIndexType(context, index_dtype));
  const Shape& data = context.InputShape(0);
  const Shape& indices = context.InputShape(1);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), data.rank()));
  const auto strides = data.Strides();
  std::vector<BroadcastPlan::Axis> axes;
  for (int d = 0; d < data.rank(); ++d) {
    axes.push_back({indices.dim(d), {d == axis ? 0 : strides[d]}});
  }
  const BroadcastPlan plan = BroadcastPlan::OfStrides(axes, 1);
  if (plan.axes.size() > kMaxBroadcastAxes) {
    return context.Unimplemented("indices of so many axes on CUDA devices");
  }
  GatherElementsCall call;
  call.count = indices.num_elements();
  call.size = data.dim(axis);
  call.stride = strides[axis];
  call.has_small_indices = std::max(call.count, plan.Reach(0)) < kPieceLimit;
  if (call.has_small_indices) {
    call.small = plan.Map<1, int32_t>();
  } else {
    call.map = plan.Map<1, int64_t>();
  }
  return MakeKernel([=, source = IndexSource(context)](const KernelContext& run) mutable {
    call.x = run.inputs[0];
    call.indices = IndicesOf(run, 1, index_dtype);
    call.y = run.outputs[0];
    call.report = ReportOf(run, source, call.size);
    return LaunchStatus(LaunchGatherElements(QueueOf(run), bytes, call), "GatherElements");
  });
}

WEFT_REGISTER_KERNEL("", "Gather", DeviceKind::kCuda, PrepareGather);
WEFT_REGISTER_KERNEL("ai.weft", "GatherGrad", DeviceKind::kCuda, PrepareGatherGrad);
WEFT_REGISTER_KERNEL("", "GatherElements", DeviceKind::kCuda, PrepareGatherElements);

}  // namespace
}  // namespace weft::cuda
