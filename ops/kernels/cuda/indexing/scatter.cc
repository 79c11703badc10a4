// ScatterElements and GatherElementsGrad, ScatterND, GatherND and its gradient, TensorScatter,
// PlaceSamples.
#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/indexing/index_operand.h"
#include "ops/kernels/cuda/indexing/index_sort_launch.h"
#include "ops/kernels/cuda/indexing/scatter_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

Arrival ArrivalOf(const PrepareContext& context) {
  const std::string name = context.attributes().String("reduction", "none");
  if (name == "add") return Arrival::kAdds;
  if (name == "mul") return Arrival::kMultiplies;
  if (name == "max") return Arrival::kMax;
  return name == "min" ? Arrival::kMin : Arrival::kReplaces;
}

// What arrives otherwise than in place of the old is computed: only numbers and bool.
absl::Status CheckArrival(const PrepareContext& context, Arrival arrival, DType dtype) {
  if (arrival == Arrival::kReplaces) return absl::OkStatus();
  return PrepareByElement(context, dtype, RealElements(),
                          [](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> { return nullptr; })
      .status();
}

// All elements of a tensor.
absl::StatusOr<StridedCopy> WholeCopy(const PrepareContext& context, const Shape& shape,
                                      int bytes) {
  return StridedCopy::Make(context, {{shape.num_elements(), 1, 1}}, bytes);
}

absl::Status CopyData(const KernelContext& run, const StridedCopy& copy, const char* op) {
  if (run.outputs[0] == run.inputs[0]) return absl::OkStatus();
  return LaunchStatus(copy.Run(QueueOf(run), run.inputs[0], run.outputs[0]), op);
}

// ---- ScatterElements, GatherElementsGrad

absl::StatusOr<ScatterElementsCall> ScatterPlan(const PrepareContext& context, const Shape& y) {
  const Shape& indices = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckIndexType(context, context.InputDType(1)));
  if (y.rank() > kMaxScatterAxes) {
    return context.Unimplemented(absl::StrCat(
        "a scatter of ", y.rank(), " axes on CUDA devices; the limit is ", kMaxScatterAxes));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), y.rank()));
  const auto strides = indices.Strides();
  ScatterElementsCall call;
  call.count = y.num_elements();
  call.size = y.dim(axis);
  call.length = indices.dim(axis);
  call.stride = strides[axis];
  call.axes = y.rank();
  call.axis = y.rank() - 1 - axis;
  for (int d = 0; d < y.rank(); ++d) {
    const int from = y.rank() - 1 - d;
    call.sizes[d] = y.dim(from);
    call.limits[d] = from == axis ? y.dim(from) : indices.dim(from);
    call.strides[d] = from == axis ? 0 : strides[from];
  }
  return call;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScatterElements(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  const Arrival arrival = ArrivalOf(context);
  WEFT_RETURN_IF_ERROR(CheckArrival(context, arrival, dtype));
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, dtype));
  WEFT_ASSIGN_OR_RETURN(ScatterElementsCall call, ScatterPlan(context, context.InputShape(0)));
  const DType index_dtype = context.InputDType(1);
  return MakeKernel([=, source = IndexSource(context)](const KernelContext& run) mutable {
    call.data = run.inputs[0];
    call.indices = IndicesOf(run, 1, index_dtype);
    call.updates = run.inputs[2];
    call.y = run.outputs[0];
    call.report = ReportOf(run, source, call.size);
    return LaunchStatus(LaunchScatterElements(QueueOf(run), dtype, bytes, arrival, call),
                        "ScatterElements");
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElementsGrad(const PrepareContext& context) {
  const DType dtype = context.OutputDType(0);
  if (context.InputDType(0) != dtype) {
    return context.Unimplemented("dY must have the type of dX on CUDA devices");
  }
  WEFT_ASSIGN_OR_RETURN(ScatterElementsCall call, ScatterPlan(context, context.OutputShape(0)));
  const DType index_dtype = context.InputDType(1);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=, source = IndexSource(context)](const KernelContext& run) mutable {
          call.indices = IndicesOf(run, 1, index_dtype);
          call.updates = run.inputs[0];
          call.y = run.outputs[0];
          call.report = ReportOf(run, source, call.size);
          return LaunchStatus(LaunchScatterElements(QueueOf(run), dtype, 0, Arrival::kAdds, call),
                              "GatherElementsGrad");
        });
      });
}

// ---- GatherND and its gradient, ScatterND

// Rows of `data` that tuples name, and their size.
struct TuplePlan {
  TupleRows tuples;
  int64_t rows = 0;
  int64_t row = 1;  // elements
};

absl::StatusOr<TuplePlan> PlanTuples(const PrepareContext& context, const Shape& data,
                                     const char* batch_attribute) {
  const Shape& indices = context.InputShape(1);
  const int batches = static_cast<int>(context.attributes().Int(batch_attribute, 0));
  const int depth = static_cast<int>(indices.dim(indices.rank() - 1));
  if (depth > kMaxScatterAxes) {
    return context.Unimplemented(absl::StrCat(
        "index tuples of ", depth, " coordinates on CUDA devices; the limit is ", kMaxScatterAxes));
  }
  TuplePlan plan;
  plan.tuples.depth = depth;
  plan.tuples.count = indices.ProductOf(0, indices.rank() - 1);
  plan.tuples.per_batch = std::max<int64_t>(indices.ProductOf(batches, indices.rank() - 1), 1);
  plan.tuples.batch_rows = data.ProductOf(batches, batches + depth);
  for (int k = 0; k < depth; ++k) {
    plan.tuples.sizes[k] = data.dim(batches + k);
    plan.tuples.strides[k] = data.ProductOf(batches + k + 1, batches + depth);
  }
  plan.rows = data.ProductOf(0, batches + depth);
  plan.row = data.ProductOf(batches + depth, data.rank());
  return plan;
}

TupleRows TuplesOf(const KernelContext& run, const TuplePlan& plan, const std::string& source) {
  TupleRows tuples = plan.tuples;
  tuples.indices = In<int64_t>(run, 1);
  tuples.fault = run.stream->fault();
  tuples.source = source.c_str();
  return tuples;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherNd(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const TuplePlan plan,
                        PlanTuples(context, context.InputShape(0), "batch_dims"));
  const int64_t row_bytes = plan.row * width;
  return MakeKernel([=, source = IndexSource(context)](const KernelContext& run) {
    const int unit = LargestUnit(row_bytes, run.inputs[0], run.outputs[0]);
    GatherTuplesCall call;
    call.tuples = TuplesOf(run, plan, source);
    call.x = run.inputs[0];
    call.y = run.outputs[0];
    call.row = row_bytes / unit;
    return LaunchStatus(LaunchGatherTuples(QueueOf(run), unit, call), "GatherND");
  });
}

// Where arrays begin in the workspace, in bytes.
struct ScatterSpace {
  IndexSort sort;
  size_t order = 0;
  size_t sort_space = 0;
  size_t total = 0;
};

absl::StatusOr<ScatterSpace> PlanScatter(const PrepareContext& context, const TuplePlan& plan) {
  const int64_t count = plan.tuples.count;
  if (count >= int64_t{1} << 31 || plan.rows >= (int64_t{1} << 32) - 1) {
    return context.Unimplemented(
        "a scatter on CUDA devices has less than 2^31 index tuples and 2^32 - 1 rows");
  }
  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  ScatterSpace space;
  space.sort = {count, plan.rows + 1};
  space.order = aligned(static_cast<size_t>(count) * 4);
  space.sort_space = 2 * space.order;
  space.total = space.sort_space + space.sort.workspace_bytes();
  return space;
}

// Sorts the tuples by the rows that they name, and lets the updates arrive.
absl::Status RunScatter(const KernelContext& run, const TuplePlan& plan, const ScatterSpace& space,
                        const TupleRows& tuples, DType dtype, int bytes, Arrival arrival,
                        const void* updates, const char* op) {
  const LaunchQueue queue = QueueOf(run);
  char* const memory = static_cast<char*>(run.workspace);
  auto* const sorted_keys = reinterpret_cast<uint32_t*>(memory);
  auto* const order = reinterpret_cast<uint32_t*>(memory + space.order);
  uint32_t* const keys = space.sort.Keys(sorted_keys, memory + space.sort_space);
  WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchTupleKeys(queue, tuples, plan.rows, keys), op));
  WEFT_RETURN_IF_ERROR(
      LaunchStatus(space.sort.Launch(queue, sorted_keys, order, memory + space.sort_space), op));
  ScatterRowsCall call;
  call.keys = sorted_keys;
  call.order = order;
  call.updates = updates;
  call.y = run.outputs[0];
  call.count = plan.tuples.count;
  call.rows = plan.rows;
  call.row = plan.row;
  return LaunchStatus(LaunchScatterRows(queue, dtype, bytes, arrival, call), op);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScatterNd(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  const Arrival arrival = ArrivalOf(context);
  WEFT_RETURN_IF_ERROR(CheckArrival(context, arrival, dtype));
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, dtype));
  WEFT_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(context, context.InputShape(0), ""));
  WEFT_ASSIGN_OR_RETURN(const ScatterSpace space, PlanScatter(context, plan));
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy, WholeCopy(context, context.InputShape(0), bytes));
  return MakeKernel(
      [=, source = IndexSource(context)](const KernelContext& run) -> absl::Status {
        WEFT_RETURN_IF_ERROR(CopyData(run, copy, "ScatterND"));
        return RunScatter(run, plan, space, TuplesOf(run, plan, source), dtype, bytes, arrival,
                          run.inputs[2], "ScatterND");
      },
      space.total);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherNdGrad(const PrepareContext& context) {
  const Shape& output = context.OutputShape(0);
  const DType dtype = context.OutputDType(0);
  if (context.InputDType(0) != dtype) {
    return context.Unimplemented("dY must have the type of dX on CUDA devices");
  }
  WEFT_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(context, output, "batch_dims"));
  WEFT_ASSIGN_OR_RETURN(const ScatterSpace space, PlanScatter(context, plan));
  const auto bytes = static_cast<int64_t>(DTypeBytes(dtype, output.num_elements()));
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel(
            [=, source = IndexSource(context)](const KernelContext& run) -> absl::Status {
              WEFT_RETURN_IF_ERROR(
                  LaunchStatus(LaunchClear(QueueOf(run), run.outputs[0], bytes), "GatherNdGrad"));
              return RunScatter(run, plan, space, TuplesOf(run, plan, source), dtype, 0,
                                Arrival::kAdds, run.inputs[0], "GatherNdGrad");
            },
            space.total);
      });
}

// ---- TensorScatter

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTensorScatter(const PrepareContext& context) {
  const Shape& past = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -2), past.rank()));
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy, WholeCopy(context, past, bytes));
  CacheCall call;
  call.count = context.InputShape(1).num_elements();
  call.prefix = std::max<int64_t>(past.ProductOf(1, axis), 1);
  call.positions = std::max<int64_t>(past.dim(axis), 1);
  call.updated = context.InputShape(1).dim(axis);
  call.inner = std::max<int64_t>(past.ProductOf(axis + 1, past.rank()), 1);
  const bool is_circular = context.attributes().String("mode", "linear") == "circular";
  call.report.low = 0;
  call.report.high = is_circular ? std::numeric_limits<int64_t>::max()
                                 : std::max<int64_t>(past.dim(axis) - call.updated + 1, 0);
  const bool has_starts = context.HasInput(2);
  return MakeKernel([=, source = IndexSource(context, "write index")](
                        const KernelContext& run) mutable -> absl::Status {
    WEFT_RETURN_IF_ERROR(CopyData(run, copy, "TensorScatter"));
    call.updates = run.inputs[1];
    if (has_starts) call.starts = In<int64_t>(run, 2);
    call.cache = run.outputs[0];
    call.report.fault = run.stream->fault();
    call.report.source = source.c_str();
    return LaunchStatus(LaunchCache(QueueOf(run), bytes, call), "TensorScatter");
  });
}

// ---- PlaceSamples

absl::StatusOr<std::unique_ptr<Kernel>> PreparePlaceSamples(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const DType dtype = context.InputDType(0);
  const int64_t count = shape.num_elements();
  const int64_t room = context.OutputShape(0).num_elements();
  const int64_t stride = shape.ProductOf(1, shape.rank());
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, dtype));
  WEFT_ASSIGN_OR_RETURN(const StridedCopy copy, WholeCopy(context, shape, bytes));
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) -> absl::Status {
          const int64_t first = run.first_sample * stride;
          if (first + count > room) {
            return absl::InternalError(absl::StrCat("PlaceSamples has room for ", room,
                                                    " numbers, and got ", count, " from place ",
                                                    first));
          }
          WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchClear(QueueOf(run), run.outputs[0], room * bytes),
                                            "PlaceSamples"));
          return LaunchStatus(
              copy.Run(QueueOf(run), run.inputs[0], Out<char>(run, 0) + first * bytes),
              "PlaceSamples");
        });
      });
}

WEFT_REGISTER_KERNEL("", "ScatterElements", DeviceKind::kCuda, PrepareScatterElements);
WEFT_REGISTER_KERNEL("ai.weft", "GatherElementsGrad", DeviceKind::kCuda, PrepareGatherElementsGrad);
WEFT_REGISTER_KERNEL("", "ScatterND", DeviceKind::kCuda, PrepareScatterNd);
WEFT_REGISTER_KERNEL("", "GatherND", DeviceKind::kCuda, PrepareGatherNd);
WEFT_REGISTER_KERNEL("ai.weft", "GatherNdGrad", DeviceKind::kCuda, PrepareGatherNdGrad);
WEFT_REGISTER_KERNEL("", "TensorScatter", DeviceKind::kCuda, PrepareTensorScatter);
WEFT_REGISTER_KERNEL("ai.weft", "PlaceSamples", DeviceKind::kCuda, PreparePlaceSamples);

}  // namespace
}  // namespace weft::cuda
