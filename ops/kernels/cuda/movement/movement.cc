// Trilu, Pad, CenterCropPad, ReverseSequence and RunningTerm.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/pad_widths.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/movement/movement_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTrilu(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  TriluCall call;
  call.count = shape.num_elements();
  call.rows = shape.dim(shape.rank() - 2);
  call.columns = shape.dim(shape.rank() - 1);
  call.upper = context.attributes().Int("upper", 1) != 0;
  const bool has_k = context.HasInput(1);
  return MakeKernel([=](const KernelContext& run) mutable {
    call.x = run.inputs[0];
    call.y = run.outputs[0];
    if (has_k) call.k = In<int64_t>(run, 1);
    return LaunchStatus(LaunchTrilu(QueueOf(run), bytes, call), "Trilu");
  });
}

// ---- Pad

Beyond BeyondOf(PadMode mode) {
  switch (mode) {
    case PadMode::kReflect:
      return Beyond::kReflect;
    case PadMode::kEdge:
      return Beyond::kEdge;
    case PadMode::kWrap:
      return Beyond::kWrap;
    case PadMode::kConstant:
      break;
  }
  return Beyond::kFill;
}

// Axes that stay as they are, side by side, are one axis. Major first.
std::vector<PadAxis> PadAxesOf(const Shape& x, const Shape& y,
                               const std::vector<PadWidth>& widths) {
  const auto strides = x.Strides();
  std::vector<PadAxis> axes;
  bool last_is_whole = false;
  for (int i = 0; i < x.rank(); ++i) {
    const PadWidth& width = widths[static_cast<size_t>(i)];
    PadAxis axis;
    axis.size = y.dim(i);
    axis.before = std::max<int64_t>(width.begin, 0);
    axis.first = std::max<int64_t>(-width.begin, 0);
    axis.kept = x.dim(i) - axis.first - std::max<int64_t>(-width.end, 0);
    axis.stride = strides[i];
    const bool is_whole = width.begin == 0 && width.end == 0;
    if (is_whole && last_is_whole) {
      axes.back().size *= axis.size;
      axes.back().kept *= axis.kept;
      axes.back().stride = axis.stride;
    } else {
      axes.push_back(axis);
    }
    last_is_whole = is_whole;
  }
  if (axes.empty()) axes.emplace_back();
  return axes;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakePad(const PrepareContext& context,
                                                const std::vector<PadWidth>& widths, PadMode mode,
                                                int fill_input) {
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const std::vector<PadAxis> axes = PadAxesOf(x, y, widths);
  if (axes.size() > kMaxPadAxes) {
    return context.Unimplemented(absl::StrCat("no kernel for CUDA devices pads tensors that are ",
                                              axes.size(), " axes after merging; the limit is ",
                                              kMaxPadAxes));
  }
  PadCall call;
  call.count = y.num_elements();
  call.axes = static_cast<int>(axes.size());
  call.beyond = BeyondOf(mode);
  for (size_t d = 0; d < axes.size(); ++d) {
    const PadAxis& axis = axes[axes.size() - 1 - d];
    if (mode != PadMode::kConstant && axis.kept <= 0 && axis.size > 0) {
      return context.InvalidArgument(
          absl::StrCat("an axis that becomes ", axis.size,
                       " elements has none to pad with in this mode; the input is ", x.ToString()));
    }
    call.axis[d] = axis;
  }
  return MakeKernel([=, op = context.node().op](const KernelContext& run) mutable {
    call.x = run.inputs[0];
    if (fill_input >= 0) call.fill = run.inputs[fill_input];
    call.y = run.outputs[0];
    return LaunchStatus(LaunchPad(QueueOf(run), bytes, call), op);
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PreparePad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PadMode mode,
                        ParsePadMode(context.attributes().String("mode", "constant")));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, RequiredInts(context, 1));
  std::optional<std::vector<int64_t>> axes;
  if (context.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(axes, RequiredInts(context, 3));
  }
  if (context.HasInput(2) && context.InputShape(2).num_elements() != 1) {
    return context.InvalidArgument("input 'constant_value' must hold one value");
  }
  const auto widths = ReadPadWidths(context.InputShape(0).rank(), pads, axes);
  if (!widths.ok()) return context.InvalidArgument(std::string(widths.status().message()));
  return MakePad(context, *widths, mode, context.HasInput(2) ? 2 : -1);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCenterCropPad(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  std::vector<PadWidth> widths;
  for (int i = 0; i < x.rank(); ++i) {
    widths.push_back(CenteredWidth(x.dim(i), context.OutputShape(0).dim(i)));
  }
  return MakePad(context, widths, PadMode::kConstant, -1);
}

// ---- ReverseSequence

absl::StatusOr<std::unique_ptr<Kernel>> PrepareReverseSequence(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int batch,
                        NormalizeAxis(context.attributes().Int("batch_axis", 1), x.rank()));
  WEFT_ASSIGN_OR_RETURN(const int time,
                        NormalizeAxis(context.attributes().Int("time_axis", 0), x.rank()));
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const int low = std::min(batch, time);
  const int high = std::max(batch, time);
  ReverseCall call;
  call.count = x.num_elements();
  call.first = x.dim(low);
  call.middle = x.ProductOf(low + 1, high);
  call.second = x.dim(high);
  call.inner = x.ProductOf(high + 1, x.rank());
  call.batch_is_first = batch == low;
  call.report.low = 0;
  call.report.high = x.dim(time) + 1;
  const std::string source =
      absl::StrCat("ReverseSequence '", context.node().name, "': sequence_lens");
  return MakeKernel([=](const KernelContext& run) mutable {
    call.x = run.inputs[0];
    call.lengths = In<int64_t>(run, 1);
    call.y = run.outputs[0];
    call.report.fault = run.stream->fault();
    call.report.source = source.c_str();
    return LaunchStatus(LaunchReverse(QueueOf(run), bytes, call), "ReverseSequence");
  });
}

// ---- RunningTerm

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRunningTerm(const PrepareContext& context) {
  const double decay = context.attributes().Float("decay", 1.0f);
  const double share = context.attributes().Float("share", 0.0f);
  const int64_t count = context.InputShape(0).num_elements();
  const bool wants_weight = context.HasOutput(1);
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          const int to_come = run.micro_batches - 1 - run.micro_batch;
          const double weight = share * std::pow(decay, to_come);
          return LaunchStatus(
              LaunchRunningTerm(QueueOf(run), dtype, run.inputs[0], run.outputs[0],
                                wants_weight ? run.outputs[1] : nullptr, count, weight),
              "RunningTerm");
        });
      });
}

WEFT_REGISTER_KERNEL("", "Trilu", DeviceKind::kCuda, PrepareTrilu);
WEFT_REGISTER_KERNEL("", "Pad", DeviceKind::kCuda, PreparePad);
WEFT_REGISTER_KERNEL("", "CenterCropPad", DeviceKind::kCuda, PrepareCenterCropPad);
WEFT_REGISTER_KERNEL("", "ReverseSequence", DeviceKind::kCuda, PrepareReverseSequence);
WEFT_REGISTER_KERNEL("ai.weft", "RunningTerm", DeviceKind::kCuda, PrepareRunningTerm);

}  // namespace
}  // namespace weft::cuda
