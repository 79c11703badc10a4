// GridSample, GridSampleGrad and AffineGrid.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/defs/image/sampling_attributes.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/image/grid_sample_launch.h"
#include "ops/kernels/cuda/indexing/weighted_sums_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

bool IsGridFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// OK for floating types of 16 bits and more.
absl::Status CheckGridFloat(const PrepareContext& context, DType dtype) {
  if (IsGridFloat(dtype)) return absl::OkStatus();
  return context.Unimplemented(
      absl::StrCat("no kernel for ", std::string(DTypeName(dtype)), " on CUDA devices"));
}

// From X [batch, channels, image...], Y's shape, and the types of X and of the grid.
absl::StatusOr<GridSampleCall> GridCallOf(const PrepareContext& context, const Shape& x,
                                          const Shape& y, DType x_dtype, DType grid_dtype) {
  WEFT_RETURN_IF_ERROR(CheckGridFloat(context, grid_dtype));
  GridSampleCall call;
  call.options = ReadGridOptions(context.attributes());
  call.axes = x.rank() - 2;
  if (call.axes < 1 || call.axes > kGridAxes) {
    return context.Unimplemented(
        absl::StrCat("images on GPUs have 1 to 3 axes, X has ", call.axes));
  }
  for (int i = 0; i < call.axes; ++i) call.image[kGridAxes - call.axes + i] = x.dim(2 + i);
  call.samples = x.dim(0);
  call.channels = x.dim(1);
  call.points = y.ProductOf(2, y.rank());
  call.grid.dtype = grid_dtype;
  call.is_wide = x_dtype == DType::kFloat64 || grid_dtype == DType::kFloat64;
  const int64_t plane = x.ProductOf(2, x.rank());
  if (plane > std::numeric_limits<int32_t>::max()) {
    return context.Unimplemented("images on GPUs have less than 2^31 elements");
  }
  if (plane == 0 && call.samples * call.channels * call.points > 0) {
    return context.InvalidArgument("X has no elements to sample");
  }
  return call;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGridSample(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  WEFT_ASSIGN_OR_RETURN(const GridSampleCall sizes,
                        GridCallOf(context, context.InputShape(0), context.OutputShape(0), dtype,
                                   context.InputDType(1)));
  return PrepareByElement(
      context, dtype, RealElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          GridSampleCall call = sizes;
          call.grid.data = run.inputs[1];
          return LaunchStatus(
              LaunchGridSample(QueueOf(run), dtype, call, run.inputs[0], run.outputs[0]),
              "GridSample");
        });
      });
}

// ---- GridSampleGrad(dY, X, grid) -> dX, dgrid. dX is summed in pieces of whole samples.

constexpr int64_t kPieceTerms = int64_t{1} << 23;  // some 200 MB
constexpr int64_t kMaxTerms = std::numeric_limits<int32_t>::max();

class GridSampleGradKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context) {
    for (int i = 0; i < 2; ++i) {
      WEFT_RETURN_IF_ERROR(CheckGridFloat(context, context.InputDType(i)));
    }
    // dY and X of another type make the arithmetic as wide as the widest.
    const bool is_wide = context.InputDType(0) == DType::kFloat64;
    WEFT_ASSIGN_OR_RETURN(
        GridSampleCall call,
        GridCallOf(context, context.InputShape(1), context.InputShape(0),
                   is_wide ? DType::kFloat64 : context.InputDType(1), context.InputDType(2)));
    auto kernel = std::make_unique<GridSampleGradKernel>(context, call);
    if (!context.HasOutput(0)) return kernel;
    WeightedSums& sums = kernel->sums_;
    sums.channels = call.channels;
    sums.sources = call.points;
    sums.parts = call.parts();
    sums.elements = call.plane();
    sums.has_wide_weights = call.is_wide;
    const int64_t terms = std::max<int64_t>(sums.sources * sums.parts, 1);
    if (terms > kMaxTerms) {
      return context.Unimplemented("samples with 2^31 weights and more on CUDA devices");
    }
    sums.groups = std::min({std::max<int64_t>(kPieceTerms / terms, 1), call.samples,
                            std::max<int64_t>(kMaxTerms / std::max<int64_t>(call.plane(), 1), 1)});
    kernel->workspace_ = sums.workspace_bytes();
    return kernel;
  }
  GridSampleGradKernel(const PrepareContext& context, const GridSampleCall& sizes)
      : sizes_(sizes),
        dy_dtype_(context.InputDType(0)),
        x_dtype_(context.InputDType(1)),
        wants_dx_(context.HasOutput(0)),
        wants_dgrid_(context.HasOutput(1)) {}

  size_t workspace_bytes() const override { return workspace_; }

  absl::Status Run(const KernelContext& run) override {
    GridSampleCall call = sizes_;
    call.grid.data = run.inputs[2];
    if (wants_dx_) {
      for (int64_t first = 0; first < call.samples; first += sums_.groups) {
        WEFT_RETURN_IF_ERROR(SumPiece(run, first));
      }
    }
    if (!wants_dgrid_) return absl::OkStatus();
    return LaunchStatus(
        LaunchGridSlopes(QueueOf(run), call, {run.inputs[0], dy_dtype_}, {run.inputs[1], x_dtype_},
                         {run.outputs[1], sizes_.grid.dtype}),
        "GridSampleGrad");
  }

 private:
  // dX of the samples from `first` on.
  absl::Status SumPiece(const KernelContext& run, int64_t first) const {
    WeightedSums sums = sums_;
    sums.groups = std::min(sums_.groups, sizes_.samples - first);
    GridSampleCall call = sizes_;
    call.samples = sums.groups;
    const auto bytes = [](DType dtype, int64_t count) {
      return static_cast<size_t>(DTypeBytes(dtype, count));
    };
    call.grid.data = At(run.inputs[2], bytes(sizes_.grid.dtype, first * call.points * call.axes));
    if (sums.terms() > 0) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchGridParts(QueueOf(run), call, sums.Keys(run.workspace),
                                       sums.Weights(run.workspace)),
                       "GridSampleGrad"));
    }
    const RealInput dy = {At(run.inputs[0], bytes(dy_dtype_, first * call.channels * call.points)),
                          dy_dtype_};
    const RealOutput dx = {
        At(run.outputs[0], bytes(x_dtype_, first * call.channels * call.plane())), x_dtype_};
    return LaunchStatus(sums.Launch(QueueOf(run), dy, dx, run.workspace), "GridSampleGrad");
  }

  const GridSampleCall sizes_;
  const DType dy_dtype_, x_dtype_;
  const bool wants_dx_, wants_dgrid_;
  WeightedSums sums_;  // of a whole piece
  size_t workspace_ = 0;
};

// ---- AffineGrid.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAffineGrid(const PrepareContext& context) {
  const Shape grid = context.OutputShape(0);
  AffineGridCall sizes;
  sizes.axes = grid.rank() - 2;
  for (int i = 0; i < sizes.axes; ++i) sizes.image[kGridAxes - sizes.axes + i] = grid.dim(1 + i);
  sizes.samples = grid.dim(0);
  sizes.align_corners = context.attributes().Int("align_corners", 0) != 0;
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          AffineGridCall call = sizes;
          call.theta = run.inputs[0];
          call.grid = run.outputs[0];
          return LaunchStatus(LaunchAffineGrid(QueueOf(run), dtype, call), "AffineGrid");
        });
      });
}

WEFT_REGISTER_KERNEL("", "GridSample", DeviceKind::kCuda, PrepareGridSample);
WEFT_REGISTER_KERNEL("ai.weft", "GridSampleGrad", DeviceKind::kCuda, GridSampleGradKernel::Create);
WEFT_REGISTER_KERNEL("", "AffineGrid", DeviceKind::kCuda, PrepareAffineGrid);

}  // namespace
}  // namespace weft::cuda
