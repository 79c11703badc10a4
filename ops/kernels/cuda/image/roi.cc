// RoiAlign, MaxRoiPool and their gradients.
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
#include "ops/kernels/cuda/image/roi_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// What all kernels of regions have: the first launch makes their rows in the workspace.
class RoiKernel : public Kernel {
 public:
  // `x` and `y`: shapes of X and Y. `rois`: the number of the input; batch_indices lie behind it.
  RoiKernel(const PrepareContext& context, const Shape& x, const Shape& y, int rois, bool is_align)
      : rois_(rois),
        rois_dtype_(context.InputDType(rois)),
        sample_source_(Source(context, is_align ? "batch_indices" : "sample of rois")),
        corner_source_(Source(context, "pixels of a corner of rois")),
        grid_source_(Source(context, "samples along an axis of rois")) {
    const Attributes& attributes = context.attributes();
    sizes_.is_align = is_align;
    sizes_.takes_max = attributes.String("mode", "avg") == "max";
    sizes_.samples = x.dim(0);
    sizes_.channels = x.dim(1);
    sizes_.size[0] = x.dim(2);
    sizes_.size[1] = x.dim(3);
    sizes_.regions = y.dim(0);
    sizes_.spec = ReadRoiSpec(attributes, y.dim(2), y.dim(3));
    rows_ = layout_.Add(static_cast<size_t>(sizes_.regions) * sizeof(RoiRow));
  }

  // Unimplemented for types, and planes, that there are no kernels for.
  absl::Status Check(const PrepareContext& context, int floats) const {
    for (int i = 0; i < floats; ++i) {
      const DType dtype = context.InputDType(i);
      if (dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
          dtype == DType::kBfloat16) {
        continue;
      }
      return context.Unimplemented(
          absl::StrCat("no kernel for ", std::string(DTypeName(dtype)), " on CUDA devices"));
    }
    if (sizes_.plane() > std::numeric_limits<int32_t>::max()) {
      return context.Unimplemented("images on GPUs have less than 2^31 pixels");
    }
    if (sizes_.is_align && sizes_.plane() == 0 && sizes_.regions * sizes_.channels > 0) {
      return context.InvalidArgument("X has no elements to pool");
    }
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return layout_.total(); }

 protected:
  absl::StatusOr<RoiCall> MakeRows(const KernelContext& run) const {
    RoiCall call = sizes_;
    call.rows = static_cast<RoiRow*>(At(run.workspace, rows_));
    RoiRowsCall rows;
    rows.rois = {run.inputs[rois_], rois_dtype_};
    if (call.is_align) rows.batch = In<int64_t>(run, rois_ + 1);
    DeviceFault* const fault = run.stream->fault();
    constexpr int64_t kCorner = static_cast<int64_t>(kMaxRoiStart);
    rows.sample_report = {fault, sample_source_.c_str(), 0, call.samples};
    rows.corner_report = {fault, corner_source_.c_str(), -kCorner, kCorner};
    rows.grid_report = {fault, grid_source_.c_str(), 0, kMaxRoiSamples + 1};
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchRoiRows(QueueOf(run), call, rows), "the regions of a pool"));
    return call;
  }

  RoiCall sizes_;
  WorkspaceLayout layout_;

 private:
  static std::string Source(const PrepareContext& context, const char* what) {
    return absl::StrCat(context.node().op, " '", context.node().name, "': ", what);
  }

  const int rois_;
  const DType rois_dtype_;
  const std::string sample_source_, corner_source_, grid_source_;
  size_t rows_ = 0;
};

class RoiPoolKernel final : public RoiKernel {
 public:
  RoiPoolKernel(const PrepareContext& context, bool is_align)
      : RoiKernel(context, context.InputShape(0), context.OutputShape(0), 1, is_align),
        dtype_(context.InputDType(0)) {}

  absl::Status Run(const KernelContext& run) override {
    WEFT_ASSIGN_OR_RETURN(const RoiCall call, MakeRows(run));
    const auto launch = call.is_align ? LaunchRoiAlign : LaunchMaxRoiPool;
    return LaunchStatus(launch(QueueOf(run), dtype_, call, run.inputs[0], run.outputs[0]),
                        call.is_align ? "RoiAlign" : "MaxRoiPool");
  }

 private:
  const DType dtype_;
};

template <bool kAlign>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareRoiPool(const PrepareContext& context) {
  auto kernel = std::make_unique<RoiPoolKernel>(context, kAlign);
  WEFT_RETURN_IF_ERROR(kernel->Check(context, 2));
  return kernel;
}

// Inputs dY, X, rois; outputs dX and, of RoiAlign, drois.
class RoiGradKernel final : public RoiKernel {
 public:
  RoiGradKernel(const PrepareContext& context, bool is_align)
      : RoiKernel(context, context.InputShape(1), context.InputShape(0), 2, is_align),
        dy_dtype_(context.InputDType(0)),
        x_dtype_(context.InputDType(1)),
        drois_dtype_(context.InputDType(2)),
        wants_dx_(context.HasOutput(0)),
        wants_drois_(is_align && context.HasOutput(1)) {
    if (!wants_dx_ || !IsOfMaxima()) return;
    const int64_t elements = sizes_.regions * sizes_.channels * sizes_.pooled();
    places_ = layout_.Add(static_cast<size_t>(elements) * sizeof(int32_t));
    if (is_align) factors_ = layout_.Add(static_cast<size_t>(elements) * sizeof(double));
  }

  absl::Status Run(const KernelContext& run) override {
    WEFT_ASSIGN_OR_RETURN(const RoiCall call, MakeRows(run));
    const RealInput dy{run.inputs[0], dy_dtype_};
    const RealInput x{run.inputs[1], x_dtype_};
    if (wants_dx_) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(SumImage(run, call, dy, x, {run.outputs[0], x_dtype_}), "RoiAlignGrad"));
    }
    if (!wants_drois_) return absl::OkStatus();
    return LaunchStatus(LaunchRoiCorners(QueueOf(run), call, dy, x, {run.outputs[1], drois_dtype_}),
                        "RoiAlignGrad");
  }

 private:
  bool IsOfMaxima() const { return !sizes_.is_align || sizes_.takes_max; }

  int SumImage(const KernelContext& run, const RoiCall& call, const RealInput& dy,
               const RealInput& x, const RealOutput& dx) const {
    if (!IsOfMaxima()) return LaunchRoiMeanGrad(QueueOf(run), call, dy, dx);
    RoiPlaces places;
    places.places = static_cast<int32_t*>(At(run.workspace, places_));
    if (call.is_align) places.factors = static_cast<double*>(At(run.workspace, factors_));
    const int code = LaunchRoiPlaces(QueueOf(run), call, x, places);
    if (code != 0) return code;
    return LaunchRoiMaxGrad(QueueOf(run), call, dy, places, dx);
  }

  const DType dy_dtype_, x_dtype_, drois_dtype_;
  const bool wants_dx_, wants_drois_;
  size_t places_ = 0;
  size_t factors_ = 0;
};

template <bool kAlign>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareRoiGrad(const PrepareContext& context) {
  auto kernel = std::make_unique<RoiGradKernel>(context, kAlign);
  WEFT_RETURN_IF_ERROR(kernel->Check(context, 3));
  return kernel;
}

WEFT_REGISTER_KERNEL("", "RoiAlign", DeviceKind::kCuda, PrepareRoiPool<true>);
WEFT_REGISTER_KERNEL("", "MaxRoiPool", DeviceKind::kCuda, PrepareRoiPool<false>);
WEFT_REGISTER_KERNEL("ai.weft", "RoiAlignGrad", DeviceKind::kCuda, PrepareRoiGrad<true>);
WEFT_REGISTER_KERNEL("ai.weft", "MaxRoiPoolGrad", DeviceKind::kCuda, PrepareRoiGrad<false>);

}  // namespace
}  // namespace weft::cuda
