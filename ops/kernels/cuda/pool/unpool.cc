// MaxUnpool and Col2Im.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/pool/unpool_shape.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/pool/pool_geometry.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Indices count in the image that the windows cover, which lies at the beginning of the output.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxUnpool(const PrepareContext& context) {
  const auto image = UnpooledShape(context.attributes(), context.InputShape(0));
  if (!image.ok()) return context.InvalidArgument(std::string(image.status().message()));
  const Shape& to = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  UnpoolCall call;
  call.count = context.InputShape(0).num_elements();
  call.elements = to.num_elements();
  call.axes = to.rank();
  if (call.axes > kMaxUnpoolAxes || call.count >= int64_t{1} << 31) {
    return context.Unimplemented(absl::StrCat("MaxUnpool on CUDA devices takes at most ",
                                              kMaxUnpoolAxes, " axes and less than 2^31 elements"));
  }
  for (int d = 0; d < call.axes; ++d) {
    call.from[d] = image->dim(call.axes - 1 - d);
    call.to[d] = to.dim(call.axes - 1 - d);
  }
  call.report.low = 0;
  call.report.high = image->num_elements();
  const std::string source = absl::StrCat("MaxUnpool '", context.node().name, "': I");
  return MakeKernel(
      [=](const KernelContext& run) mutable {
        call.x = run.inputs[0];
        call.indices = In<int64_t>(run, 1);
        call.y = run.outputs[0];
        call.owners = static_cast<int32_t*>(run.workspace);
        call.report.fault = run.stream->fault();
        call.report.source = source.c_str();
        return LaunchStatus(LaunchUnpool(QueueOf(run), bytes, call), "MaxUnpool");
      },
      static_cast<size_t>(call.elements) * sizeof(int32_t));
}

absl::StatusOr<PoolGeometry> PlanColumns(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> image, RequiredInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> block, RequiredInts(context, 2));
  const auto window = WindowSpec::Create(context.attributes(), block);
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  Shape shape{1, 1};
  for (const int64_t size : image) shape.AddDim(size);
  const auto axes = window->ResolveAll(shape);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  int64_t blocks = 1;
  int64_t taps = 1;
  for (const WindowAxis& axis : *axes) {
    blocks *= axis.output;
    taps *= axis.kernel;
  }
  const Shape& x = context.InputShape(0);
  if (x.dim(2) != blocks || x.dim(1) % taps != 0) {
    return context.InvalidArgument(absl::StrCat("input ", x.ToString(), " does not hold the ",
                                                blocks, " blocks of ", taps,
                                                " elements that the image has"));
  }
  return GeometryOf(context, x.dim(0) * (x.dim(1) / taps), *axes);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCol2Im(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PoolGeometry pool, PlanColumns(context));
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, RealElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(
              LaunchCol2Im(QueueOf(run), dtype, pool, run.inputs[0], run.outputs[0]), "Col2Im");
        });
      });
}

WEFT_REGISTER_KERNEL("", "MaxUnpool", DeviceKind::kCuda, PrepareMaxUnpool);
WEFT_REGISTER_KERNEL("", "Col2Im", DeviceKind::kCuda, PrepareCol2Im);

}  // namespace
}  // namespace weft::cuda
