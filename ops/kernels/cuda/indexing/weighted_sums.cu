// Sums with weights, by the element that each term gives to.
#include "ops/kernels/cuda/blocks/strided_copy_launch.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/indexing/weighted_sums_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kWeightedThreads = 256;
constexpr int64_t kWeightedBlocks = int64_t{1} << 17;

// Where the arrays begin in the workspace.
struct WeightedLayout {
  explicit WeightedLayout(const WeightedSums& of) : sort{of.terms(), of.all_elements() + 1} {
    const size_t words = static_cast<size_t>(of.terms()) * 4;
    WorkspaceLayout layout;
    sorted = layout.Add(words);
    order = layout.Add(words);
    sort_space = layout.Add(sort.workspace_bytes());
    weights = layout.Add(of.has_wide_weights ? 2 * words : words);
    starts = layout.Add(static_cast<size_t>(of.all_elements() + 1) * 4);
    total = layout.total();
  }

  IndexSort sort;
  size_t sorted, order, sort_space, weights, starts, total;
};

uint32_t* WordsAt(void* workspace, size_t offset) {
  return static_cast<uint32_t*>(At(workspace, offset));
}

template <typename W>
int LaunchSums(LaunchQueue queue, const WeightedSums& of, const WeightedLayout& layout,
               const RealInput& x, const RealOutput& y, void* workspace) {
  const int64_t count = of.groups * of.channels * of.elements;
  return Launch<kWeightedThreads>(
      queue,
      {.blocks = Blocks(count, kWeightedThreads, kWeightedBlocks), .threads = kWeightedThreads},
      WeightedSumsBody<W>{WordsAt(workspace, layout.starts), WordsAt(workspace, layout.order),
                          static_cast<const W*>(At(workspace, layout.weights)), x, y, of});
}

}  // namespace

size_t WeightedSums::workspace_bytes() const { return WeightedLayout(*this).total; }

uint32_t* WeightedSums::Keys(void* workspace) const {
  const WeightedLayout layout(*this);
  return layout.sort.Keys(WordsAt(workspace, layout.sorted), At(workspace, layout.sort_space));
}

void* WeightedSums::Weights(void* workspace) const {
  return At(workspace, WeightedLayout(*this).weights);
}

int WeightedSums::Launch(LaunchQueue queue, const RealInput& x, const RealOutput& y,
                         void* workspace) const {
  const int64_t count = groups * channels * elements;
  if (count == 0) return 0;
  if (terms() == 0) {
    constexpr uint32_t kNothing[4] = {};
    return LaunchFill(queue, kNothing, y.data, DTypeBytes(y.dtype, count));
  }
  const WeightedLayout layout(*this);
  uint32_t* const sorted = WordsAt(workspace, layout.sorted);
  int code = layout.sort.Launch(queue, sorted, WordsAt(workspace, layout.order),
                                At(workspace, layout.sort_space));
  if (code != 0) return code;
  const LaunchGrid grid{.blocks = Blocks(all_elements() + 1, kWeightedThreads, kWeightedBlocks),
                        .threads = kWeightedThreads};
  code = cuda::Launch<kWeightedThreads>(
      queue, grid,
      KeyStartsBody{sorted, WordsAt(workspace, layout.starts), terms(), all_elements()});
  if (code != 0) return code;
  return has_wide_weights ? LaunchSums<double>(queue, *this, layout, x, y, workspace)
                          : LaunchSums<float>(queue, *this, layout, x, y, workspace);
}

}  // namespace weft::cuda
