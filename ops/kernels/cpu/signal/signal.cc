// DFT and STFT.
#include <algorithm>
#include <complex>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/signal/fourier.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using SignalTypes = TypeList<float, double>;

// Transforms many lines in S, each thread with scratch memory of its own.
template <typename S>
class LineTransforms {
 public:
  using Complex = std::complex<S>;

  LineTransforms(int64_t size, bool inverse, int64_t lines, int threads)
      : transform_(std::make_shared<FourierTransform<S>>(size, inverse)), lines_(lines) {
    const double nanoseconds = static_cast<double>(transform_->scratch_bytes() + 16 * size);
    parts_ = UsefulThreads(threads, lines, nanoseconds);
    WorkspaceLayout layout;
    layout.Add(static_cast<size_t>(size) * sizeof(Complex));
    scratch_ = layout.total();
    layout.Add(transform_->scratch_bytes());
    part_bytes_ = layout.total();
  }

  size_t workspace_bytes() const { return static_cast<size_t>(parts_) * part_bytes_; }
  int64_t size() const { return transform_->size(); }

  // Calls load(line, values), transforms them, and calls store(line, values).
  template <typename Load, typename Store>
  void Run(void* workspace, Load load, Store store) const {
    ParallelFor(static_cast<int>(parts_), parts_, 1e9, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        void* const own = At(workspace, static_cast<size_t>(part) * part_bytes_);
        Complex* const values = static_cast<Complex*>(own);
        for (int64_t line = lines_ * part / parts_; line < lines_ * (part + 1) / parts_; ++line) {
          load(line, values);
          transform_->Run(values, At(own, scratch_));
          store(line, values);
        }
      }
    });
  }

 private:
  std::shared_ptr<const FourierTransform<S>> transform_;
  int64_t lines_;
  int64_t parts_ = 1;
  size_t scratch_ = 0;
  size_t part_bytes_ = 0;
};

// ---- DFT.

// Operands as [outer, axis, inner, 1 or 2].
struct DftPlan {
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t input = 0;
  int64_t output = 0;
  int64_t parts = 1;  // of an element of the input: 2 when it is complex
  bool inverse = false;
  bool real_output = false;  // onesided inverse: the rest of the spectrum is the mirror image
  int64_t length = 1;
  int threads = 1;
};

template <typename T, typename S>
void LoadLine(const DftPlan& plan, const T* x, int64_t line, std::complex<S>* values) {
  const int64_t first = line / plan.inner * plan.input * plan.inner + line % plan.inner;
  const int64_t kept = plan.real_output ? plan.length / 2 + 1 : plan.length;
  const int64_t count = std::min(plan.input, kept);
  for (int64_t i = 0; i < count; ++i) {
    const T* const element = x + (first + i * plan.inner) * plan.parts;
    values[i] = std::complex<S>(static_cast<S>(element[0]),
                                plan.parts == 2 ? static_cast<S>(element[1]) : S(0));
  }
  std::fill(values + count, values + plan.length, std::complex<S>(0));
  if (!plan.real_output) return;
  values[0] = values[0].real();
  for (int64_t i = plan.length / 2 + 1; i < plan.length; ++i) {
    values[i] = std::conj(values[plan.length - i]);
  }
  if (plan.length % 2 == 0) values[plan.length / 2] = values[plan.length / 2].real();
}

template <typename T, typename S>
void StoreLine(const DftPlan& plan, const std::complex<S>* values, int64_t line, T* y) {
  const int64_t first = line / plan.inner * plan.output * plan.inner + line % plan.inner;
  const S factor = plan.inverse ? static_cast<S>(1.0 / static_cast<double>(plan.length)) : S(1);
  const int64_t parts = plan.real_output ? 1 : 2;
  for (int64_t i = 0; i < plan.output; ++i) {
    T* const element = y + (first + i * plan.inner) * parts;
    element[0] = static_cast<T>(values[i].real() * factor);
    if (parts == 2) element[1] = static_cast<T>(values[i].imag() * factor);
  }
}

template <typename T, typename S>
std::unique_ptr<Kernel> MakeDft(const DftPlan& plan) {
  const LineTransforms<S> lines(plan.length, plan.inverse, plan.outer * plan.inner, plan.threads);
  return MakeKernel(
      [plan, lines](const KernelContext& run) {
        lines.Run(
            run.workspace,
            [&](int64_t line, std::complex<S>* values) {
              LoadLine(plan, Input<T>(run, 0), line, values);
            },
            [&](int64_t line, const std::complex<S>* values) {
              StoreLine(plan, values, line, Output<T>(run, 0));
            });
        return absl::OkStatus();
      },
      lines.workspace_bytes());
}

absl::StatusOr<int64_t> ScalarInput(const PrepareContext& context, int i) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, RequiredInts(context, i));
  if (values.size() == 1) return values[0];
  return context.InvalidArgument(absl::StrCat("input ", i, " must be one number"));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDft(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  int64_t given = -2;
  if (context.HasInput(2)) {
    WEFT_ASSIGN_OR_RETURN(given, ScalarInput(context, 2));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, x.rank()));
  const bool onesided = context.attributes().Int("onesided", 0) != 0;
  DftPlan plan;
  plan.outer = x.ProductOf(0, axis);
  plan.inner = x.ProductOf(axis + 1, x.rank() - 1);
  plan.input = x.dim(axis);
  plan.output = context.OutputShape(0).dim(axis);
  plan.parts = x.dim(x.rank() - 1);
  plan.inverse = context.attributes().Int("inverse", 0) != 0;
  plan.real_output = plan.inverse && onesided;
  plan.length = plan.real_output ? 2 * (plan.input - 1) : plan.input;
  if (context.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(plan.length, ScalarInput(context, 1));
  }
  if (plan.length < 1) {  // of no elements, nothing
    return MakeKernel([](const KernelContext&) { return absl::OkStatus(); });
  }
  plan.threads = context.threads();
  // Complex float32 rounds as in other libraries; what is half redundant, real numbers or the
  // mirror image of a spectrum, gains from double.
  const bool single = plan.parts == 2 && !plan.real_output;
  return PrepareByDType(context, context.InputDType(0), SignalTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return single ? MakeDft<T, T>(plan) : MakeDft<T, double>(plan);
                        });
}

// ---- STFT.

struct StftPlan {
  int64_t signal = 0;
  int64_t parts = 1;
  int64_t frames = 0;
  int64_t bins = 0;
  int64_t step = 1;
  bool window = false;
};

template <typename T>
std::unique_ptr<Kernel> MakeStft(const StftPlan& plan, const LineTransforms<double>& lines) {
  return MakeKernel(
      [plan, lines](const KernelContext& run) {
        const T* const window = plan.window ? Input<T>(run, 2) : nullptr;
        lines.Run(
            run.workspace,
            [&](int64_t line, std::complex<double>* values) {
              const T* const x =
                  Input<T>(run, 0) +
                  (line / plan.frames * plan.signal + line % plan.frames * plan.step) * plan.parts;
              for (int64_t i = 0; i < lines.size(); ++i) {
                const double weight = window == nullptr ? 1.0 : static_cast<double>(window[i]);
                values[i] = weight *
                            std::complex<double>(
                                static_cast<double>(x[i * plan.parts]),
                                plan.parts == 2 ? static_cast<double>(x[i * plan.parts + 1]) : 0.0);
              }
            },
            [&](int64_t line, const std::complex<double>* values) {
              T* const y = Output<T>(run, 0) + line * plan.bins * 2;
              for (int64_t i = 0; i < plan.bins; ++i) {
                y[2 * i] = static_cast<T>(values[i].real());
                y[2 * i + 1] = static_cast<T>(values[i].imag());
              }
            });
        return absl::OkStatus();
      },
      lines.workspace_bytes());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareStft(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  StftPlan plan;
  plan.signal = x.dim(1);
  plan.parts = x.dim(2);
  plan.frames = y.dim(1);
  plan.bins = y.dim(2);
  WEFT_ASSIGN_OR_RETURN(plan.step, ScalarInput(context, 1));
  plan.window = context.HasInput(2);
  int64_t length = plan.window ? context.InputShape(2).dim(0) : plan.signal;
  if (context.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(length, ScalarInput(context, 3));
  }
  if (length < 1) return context.InvalidArgument("frames have no elements");
  const LineTransforms<double> lines(length, false, x.dim(0) * plan.frames, context.threads());
  return PrepareByDType(context, context.InputDType(0), SignalTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeStft<decltype(zero)>(plan, lines);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "DFT", DeviceKind::kCpu, Widened(PrepareDft));
WEFT_REGISTER_KERNEL("", "STFT", DeviceKind::kCpu, Widened(PrepareStft));

}  // namespace weft::cpu
