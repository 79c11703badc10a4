// CausalConvWithState: a depthwise convolution along time that looks back, and the state that the
// next piece of the sequence goes on from.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct CausalPlan {
  int64_t rows = 0;  // samples and channels
  int64_t channels = 0;
  int64_t length = 0;
  int64_t taps = 1;
  bool bias = false;
  bool past = false;
  bool present = false;
  bool silu = false;
  int threads = 1;
};

// Element i of the state followed by the input, i >= 0.
template <typename T>
T Extended(const CausalPlan& plan, const T* past, const T* x, int64_t i) {
  if (i >= plan.taps - 1) return x[i - (plan.taps - 1)];
  return past == nullptr ? T(0) : past[i];
}

template <typename T>
void ConvolveRow(const CausalPlan& plan, const T* past, const T* x, const T* w, T bias, T* y) {
  std::fill_n(y, plan.length, bias);
  for (int64_t k = 0; k < plan.taps; ++k) {
    const int64_t before = std::min(plan.taps - 1 - k, plan.length);  // outputs that see the state
    for (int64_t t = 0; t < before; ++t) y[t] += w[k] * Extended(plan, past, x, t + k);
    const T* const from = x + (k - (plan.taps - 1));
    for (int64_t t = before; t < plan.length; ++t) y[t] += w[k] * from[t];
  }
  if (!plan.silu) return;
  for (int64_t t = 0; t < plan.length; ++t) y[t] = y[t] / (1 + std::exp(-y[t]));
}

template <typename T>
void ConvolveRows(const CausalPlan& plan, const KernelContext& run, int64_t begin, int64_t end) {
  const int64_t kept = plan.taps - 1;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t channel = row % plan.channels;
    const T* x = Input<T>(run, 0) + row * plan.length;
    const T* past = plan.past ? Input<T>(run, 3) + row * kept : nullptr;
    ConvolveRow<T>(plan, past, x, Input<T>(run, 1) + channel * plan.taps,
                   plan.bias ? Input<T>(run, 2)[channel] : T(0),
                   Output<T>(run, 0) + row * plan.length);
    for (int64_t i = 0; plan.present && i < kept; ++i) {
      Output<T>(run, 1)[row * kept + i] = Extended(plan, past, x, plan.length + i);
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCausalConv(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  CausalPlan plan;
  plan.rows = x.ProductOf(0, 2);
  plan.channels = x.dim(1);
  plan.length = x.dim(2);
  plan.taps = context.InputShape(1).dim(2);
  plan.bias = context.HasInput(2);
  plan.past = context.HasInput(3);
  plan.present = context.HasOutput(1);
  plan.silu = context.attributes().String("activation", "none") != "none";
  plan.threads = context.threads();
  const double nanoseconds = static_cast<double>(plan.length) *
                             (0.2 * static_cast<double>(plan.taps) + (plan.silu ? 5.0 : 0.0));
  return PrepareByDType(
      context, context.InputDType(0), TypeList<float, double>{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan, nanoseconds](const KernelContext& run) {
          ParallelFor(plan.threads, plan.rows, nanoseconds, 1,
                      [&](int64_t begin, int64_t end) { ConvolveRows<T>(plan, run, begin, end); });
          return absl::OkStatus();
        });
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "CausalConvWithState", DeviceKind::kCpu, Widened(PrepareCausalConv));

}  // namespace weft::cpu
