// DFT and STFT.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"
#include "ops/kernels/cuda/signal/fourier_plan.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Long lines take at most so much workspace at a time, if one does.
constexpr int64_t kFourierScratchBytes = int64_t{256} << 20;

// Transforms lines of input 0 into output 0. Input 2 is the window, where there is one.
class FourierKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Make(const PrepareContext& context, int64_t length,
                                                      bool is_inverse, const FourierLines& lines,
                                                      bool has_window) {
    const DType dtype = context.InputDType(0);
    WEFT_ASSIGN_OR_RETURN(
        FourierTables tables,
        FourierTables::Make(context.device(), length, is_inverse, dtype == DType::kFloat64));
    return std::unique_ptr<Kernel>(new FourierKernel(dtype, std::move(tables), lines, has_window));
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(piece_ * line_bytes_); }
  size_t retained_bytes() const override { return tables_.bytes(); }

  absl::Status Run(const KernelContext& run) override {
    FourierLines lines = lines_;
    lines.x = run.inputs[0];
    lines.y = run.outputs[0];
    lines.window = has_window_ ? run.inputs[2] : nullptr;
    const auto pair = static_cast<uintptr_t>(2 * DTypeBytes(dtype_, 1));
    lines.has_pairs = reinterpret_cast<uintptr_t>(lines.x) % pair == 0 &&
                      reinterpret_cast<uintptr_t>(lines.y) % pair == 0;
    const LaunchQueue queue = QueueOf(run);
    if (piece_ == 0) {
      return LaunchStatus(LaunchFourierLines(queue, dtype_, tables_.plan(), lines),
                          "a Fourier transform");
    }
    for (int64_t first = 0; first < lines.lines; first += piece_) {
      const int64_t count = std::min(piece_, lines.lines - first);
      WEFT_RETURN_IF_ERROR(LaunchStatus(
          LaunchFourierSteps(queue, dtype_, tables_.plan(), lines, first, count, run.workspace),
          "a step of a Fourier transform"));
    }
    return absl::OkStatus();
  }

 private:
  FourierKernel(DType dtype, FourierTables tables, const FourierLines& lines, bool has_window)
      : dtype_(dtype), tables_(std::move(tables)), lines_(lines), has_window_(has_window) {
    const FourierPlan& plan = tables_.plan();
    if (FitsSharedMemory(plan, tables_.sums_in_double())) return;
    line_bytes_ =
        2 * plan.size * static_cast<int64_t>(FourierNumberBytes(tables_.sums_in_double()));
    piece_ = std::clamp<int64_t>(kFourierScratchBytes / line_bytes_, 1,
                                 std::max<int64_t>(lines.lines, 1));
  }

  const DType dtype_;
  const FourierTables tables_;
  const FourierLines lines_;
  const bool has_window_;
  int64_t line_bytes_ = 0;
  int64_t piece_ = 0;  // lines at a time through the workspace; 0: all through shared memory
};

std::unique_ptr<Kernel> NothingToDo() {
  return MakeKernel([](const KernelContext& /*run*/) { return absl::OkStatus(); });
}

absl::StatusOr<int64_t> NumberOf(const PrepareContext& context, int i) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, RequiredInts(context, i));
  if (values.size() == 1) return values[0];
  return context.InvalidArgument(absl::StrCat("input ", i, " must be one number"));
}

// ---- DFT: x is [outer, axis, inner, 1 or 2].

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDft(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  int64_t given = -2;
  if (context.HasInput(2)) {
    WEFT_ASSIGN_OR_RETURN(given, NumberOf(context, 2));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, x.rank()));
  const bool is_onesided = context.attributes().Int("onesided", 0) != 0;
  const bool is_inverse = context.attributes().Int("inverse", 0) != 0;
  const int64_t inner = x.ProductOf(axis + 1, x.rank() - 1);
  const int64_t bins = context.OutputShape(0).dim(axis);
  FourierLines lines;
  lines.lines = x.ProductOf(0, axis) * inner;
  lines.is_complex = x.dim(x.rank() - 1) == 2;
  lines.is_mirrored = lines.is_real = is_inverse && is_onesided;
  int64_t length = lines.is_mirrored ? 2 * (x.dim(axis) - 1) : x.dim(axis);
  if (context.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(length, NumberOf(context, 1));
  }
  if (length < 1 || lines.lines == 0 || bins == 0) return NothingToDo();
  const int64_t kept = lines.is_mirrored ? length / 2 + 1 : length;
  lines.from = {.period = inner,
                .outer = x.dim(axis) * inner,
                .inner = 1,
                .step = inner,
                .count = std::min(x.dim(axis), kept)};
  lines.to = {.period = inner, .outer = bins * inner, .inner = 1, .step = inner, .count = bins};
  if (is_inverse) lines.factor = 1.0 / static_cast<double>(length);
  return PrepareByElement(context, context.InputDType(0), FloatElements(), [&](auto) {
    return FourierKernel::Make(context, length, is_inverse, lines, false);
  });
}
WEFT_REGISTER_KERNEL("", "DFT", DeviceKind::kCuda, PrepareDft);

// ---- STFT: the signal is [batch, signal, 1 or 2], y [batch, frames, bins, 2].

absl::StatusOr<std::unique_ptr<Kernel>> PrepareStft(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int64_t step, NumberOf(context, 1));
  const bool has_window = context.HasInput(2);
  if (has_window && context.InputDType(2) != context.InputDType(0)) {
    return context.Unimplemented("the signal and the window have several types");
  }
  int64_t length = has_window ? context.InputShape(2).dim(0) : x.dim(1);
  if (context.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(length, NumberOf(context, 3));
  }
  if (length < 1) return context.InvalidArgument("frames have no elements");
  const int64_t frames = y.dim(1);
  const int64_t bins = y.dim(2);
  FourierLines lines;
  lines.lines = x.dim(0) * frames;
  lines.is_complex = x.dim(2) == 2;
  if (lines.lines == 0) return NothingToDo();
  lines.from = {.period = frames, .outer = x.dim(1), .inner = step, .step = 1, .count = length};
  lines.to = {.period = frames, .outer = frames * bins, .inner = bins, .step = 1, .count = bins};
  return PrepareByElement(context, context.InputDType(0), FloatElements(), [&](auto) {
    return FourierKernel::Make(context, length, false, lines, has_window);
  });
}
WEFT_REGISTER_KERNEL("", "STFT", DeviceKind::kCuda, PrepareStft);

}  // namespace
}  // namespace weft::cuda
