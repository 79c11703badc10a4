// DFT and STFT of lines that fit shared memory.
#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/signal/fourier_body.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"

namespace weft::cuda {
namespace {

// A thread has some four elements where lines are short, and there are blocks for all
// multiprocessors before a block gets a second line.
constexpr int64_t kElementsOfBlock = 4 * kFourierThreads;
constexpr int64_t kBlocksBeforeMore = 512;
// What BankedNumbers move lies within so many elements. Passes by other factors take elements that
// are an odd number apart, or begin between two rows of the banks: there it does more harm than
// good.
constexpr int64_t kSmallestBanked = 64;
constexpr int64_t kMaxFourierBlocks = int64_t{1} << 20;

template <typename T, typename S>
int LaunchLines(LaunchQueue queue, const FourierPlan& plan, const FourierLines& lines) {
  const int64_t enough = (lines.lines + kBlocksBeforeMore - 1) / kBlocksBeforeMore;
  const int64_t at_once = std::max<int64_t>(std::min(kElementsOfBlock / plan.size, enough), 1);
  const LaunchGrid grid = {
      .blocks = Blocks(lines.lines, static_cast<int>(at_once), kMaxFourierBlocks),
      .threads = kFourierThreads,
      .shared_bytes = 2 * static_cast<size_t>(at_once * plan.size) * sizeof(FourierNumber<S>)};
  const bool is_banked = plan.size >= kSmallestBanked && (plan.size & (plan.size - 1)) == 0;
  return Launch<kFourierThreads>(
      queue, grid,
      FourierLinesBody<T, S>{plan, lines, static_cast<int32_t>(at_once), is_banked ? -1 : 0});
}

}  // namespace

int LaunchFourierLines(LaunchQueue queue, DType dtype, const FourierPlan& plan,
                       const FourierLines& lines) {
  if (dtype == DType::kFloat64) return LaunchLines<double, double>(queue, plan, lines);
  return LaunchByType(dtype, LaunchTypes<float, Float16, Bfloat16>(), [&](auto zero) {
    using T = decltype(zero);
    if (plan.has_chirps) return LaunchLines<T, double>(queue, plan, lines);
    return LaunchLines<T, float>(queue, plan, lines);
  });
}

}  // namespace weft::cuda
