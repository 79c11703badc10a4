// DFT and STFT of long lines, a launch for each step.
#include <utility>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/signal/fourier_body.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"

namespace weft::cuda {
namespace {

constexpr int64_t kStepBlocks = 4096;

LaunchGrid StepGrid(int64_t count) {
  return {.blocks = Blocks(count, kFourierThreads, kStepBlocks), .threads = kFourierThreads};
}

// The result is in `from` again.
template <typename S>
int LaunchPasses(LaunchQueue queue, const FourierPlan& plan, bool is_inverse, int64_t lines,
                 void*& from, void*& to) {
  for (int32_t p = 0; p < plan.passes; ++p) {
    const FourierPass& pass = plan.pass[p];
    const int code = Launch<kFourierThreads>(
        queue, StepGrid(plan.size / pass.factor * lines),
        FourierPassBody<S>{{pass, plan.turns, is_inverse}, from, to, plan.size, lines});
    if (code != 0) return code;
    std::swap(from, to);
  }
  return 0;
}

template <typename T, typename S>
int LaunchSteps(LaunchQueue queue, const FourierPlan& plan, const FourierLines& lines,
                int64_t first, int64_t count, void* scratch) {
  void* from = scratch;
  void* to = static_cast<FourierNumber<S>*>(scratch) + count * plan.size;
  int code = Launch<kFourierThreads>(queue, StepGrid(count * plan.size),
                                     LoadFourierLinesBody<T, S>{plan, lines, first, count, from});
  if (code != 0) return code;
  code = LaunchPasses<S>(queue, plan, plan.is_inverse && !plan.has_chirps, count, from, to);
  if (code != 0) return code;
  if (plan.has_chirps) {
    code = Launch<kFourierThreads>(queue, StepGrid(count * plan.size),
                                   FourierFilterBody{plan.filter, from, plan.size, count});
    if (code != 0) return code;
    code = LaunchPasses<S>(queue, plan, true, count, from, to);
    if (code != 0) return code;
  }
  return Launch<kFourierThreads>(queue, StepGrid(count * lines.to.count),
                                 StoreFourierLinesBody<T, S>{plan, lines, first, count, from});
}

}  // namespace

int LaunchFourierSteps(LaunchQueue queue, DType dtype, const FourierPlan& plan,
                       const FourierLines& lines, int64_t first, int64_t count, void* scratch) {
  if (dtype == DType::kFloat64) {
    return LaunchSteps<double, double>(queue, plan, lines, first, count, scratch);
  }
  return LaunchByType(dtype, LaunchTypes<float, Float16, Bfloat16>(), [&](auto zero) {
    using T = decltype(zero);
    if (plan.has_chirps) {
      return LaunchSteps<T, double>(queue, plan, lines, first, count, scratch);
    }
    return LaunchSteps<T, float>(queue, plan, lines, first, count, scratch);
  });
}

}  // namespace weft::cuda
