// CausalConvWithState: a depthwise convolution along time that looks back, and the state that the
// next piece of the sequence goes on from.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "ops/kernels/cpu/widened.h"
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
float Extended(const CausalPlan& plan, const float* past, const float* x, int64_t i) {
  if (i >= plan.taps - 1) return x[i - (plan.taps - 1)];
  return past == nullptr ? 0.0f : past[i];
}

void ConvolveRow(const CausalPlan& plan, const float* past, const float* x, const float* w,
                 float bias, float* y) {
  std::fill_n(y, plan.length, bias);
  for (int64_t k = 0; k < plan.taps; ++k) {
    const int64_t before = std::min(plan.taps - 1 - k, plan.length);  // outputs that see the state
    for (int64_t t = 0; t < before; ++t) y[t] += w[k] * Extended(plan, past, x, t + k);
    const float* const from = x + (k - (plan.taps - 1));
    for (int64_t t = before; t < plan.length; ++t) y[t] += w[k] * from[t];
  }
  if (!plan.silu) return;
  for (int64_t t = 0; t < plan.length; ++t) y[t] = y[t] / (1.0f + std::exp(-y[t]));
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
  return MakeKernel([plan](const KernelContext& run) {
    const double nanoseconds = static_cast<double>(plan.length) *
                               (0.2 * static_cast<double>(plan.taps) + (plan.silu ? 5.0 : 0.0));
    ParallelFor(plan.threads, plan.rows, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      const int64_t kept = plan.taps - 1;
      for (int64_t row = begin; row < end; ++row) {
        const int64_t channel = row % plan.channels;
        const float* x = Input<float>(run, 0) + row * plan.length;
        const float* past = plan.past ? Input<float>(run, 3) + row * kept : nullptr;
        ConvolveRow(plan, past, x, Input<float>(run, 1) + channel * plan.taps,
                    plan.bias ? Input<float>(run, 2)[channel] : 0.0f,
                    Output<float>(run, 0) + row * plan.length);
        for (int64_t i = 0; plan.present && i < kept; ++i) {
          Output<float>(run, 1)[row * kept + i] = Extended(plan, past, x, plan.length + i);
        }
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "CausalConvWithState", DeviceKind::kCpu, Widened(PrepareCausalConv));

}  // namespace weft::cpu
