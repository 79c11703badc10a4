#include "ops/kernels/cpu/conv/winograd.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"

namespace weft::cpu {
namespace {

// Transformed inputs and products of a block should stay in a second-level cache, with the filters
// passing through it.
constexpr int64_t kCacheBytes = int64_t{1} << 20;
// The filters of a layer with many channels come from memory for each block, so that a block is not
// made smaller than this for the cache.
constexpr int64_t kMinTiles = 48;
constexpr int64_t kMaxTiles = 96;
constexpr int64_t kProductChannels = 64;
constexpr double kFlopsPerNanosecond = 60;

int64_t CeilDiv(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

size_t FloatBytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

// The work in blocks of tiles, and chunks of row blocks of output channels.
struct Plan {
  int64_t block = 0;  // tiles
  int64_t blocks = 0;
  int64_t row_blocks = 0;
  int64_t chunk = 0;  // row blocks
  int64_t chunks = 0;
  // Threads have blocks of their own; else they share the channels of one block.
  bool split_blocks = true;
};

Plan MakePlan(const WinogradConv& conv, int threads) {
  const WinogradVectors vectors = WinogradVectorsHere();
  const WinogradTiles& tiles = conv.tiles;
  Plan plan;
  plan.row_blocks = CeilDiv(tiles.output_channels, vectors.rows);
  const int64_t products = conv.cut.channels > 0 ? conv.cut.channels : kProductChannels;
  plan.chunk = std::clamp<int64_t>(products / vectors.rows, 1, plan.row_blocks);
  plan.block = conv.cut.tiles;
  if (plan.block == 0) {
    const int64_t channels = tiles.input_channels + plan.chunk * vectors.rows;
    const int64_t bytes = tiles.points() * channels * static_cast<int64_t>(sizeof(float));
    plan.block = std::clamp(kCacheBytes / bytes, kMinTiles, kMaxTiles);
  }
  // As near to that as whole blocks come: a little more is better than a further block.
  plan.blocks = std::max<int64_t>(1, (tiles.total() + plan.block / 2) / plan.block);
  plan.split_blocks = threads == 1 || plan.blocks >= threads;
  if (plan.split_blocks) {
    plan.blocks = RoundUp(plan.blocks, threads);  // as many for each thread
  } else {
    plan.chunk = std::min(plan.chunk, CeilDiv(plan.row_blocks, threads));
  }
  plan.block = RoundUp(CeilDiv(tiles.total(), plan.blocks), vectors.lanes);
  plan.blocks = CeilDiv(tiles.total(), plan.block);
  plan.chunks = CeilDiv(plan.row_blocks, plan.chunk);
  return plan;
}

class WinogradKernel final : public Kernel {
 public:
  WinogradKernel(const WinogradConv& conv, int threads)
      : conv_(conv),
        threads_(threads),
        rows_(WinogradVectorsHere().rows),
        lanes_(WinogradVectorsHere().lanes),
        plan_(MakePlan(conv, threads)) {
    const WinogradTiles& tiles = conv.tiles;
    const int64_t padded = RoundUp(plan_.block, lanes_);
    const WinogradBlock block = BlockOf(0);
    product_elements_ = tiles.points() * block.product_step;
    input_elements_ = tiles.points() * block.input_step();
    scratch_elements_ = WinogradScratchElements(tiles, padded);
    const int64_t parts = plan_.split_blocks ? plan_.blocks : plan_.chunks;
    slots_ = std::min<int64_t>(threads, std::max<int64_t>(parts, 1));
    slots_ = plan_.split_blocks ? slots_ : threads;
    inputs_ = workspace_.Add(static_cast<size_t>(plan_.split_blocks ? slots_ : 1) *
                             SlotBytes(input_elements_));
    products_ = workspace_.Add(static_cast<size_t>(slots_) * SlotBytes(product_elements_));
    scratch_ = workspace_.Add(static_cast<size_t>(slots_) * SlotBytes(scratch_elements_));
  }

  // Keeps constant filters, or leaves room for others in the workspace.
  absl::Status AddFilters(bool constant) {
    const int64_t elements = WinogradFilterElements(conv_.tiles.points(), conv_.filters);
    if (!constant) {
      filters_ = workspace_.Add(FloatBytes(elements));
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(kept_, Tensor::Allocate(DType::kFloat32, Shape{elements}));
    return absl::OkStatus();
  }

  absl::Status Run(const KernelContext& context) override {
    const float* const u = Filters(context);
    if (plan_.split_blocks) {
      RunBlocks(context, u);
    } else {
      for (int64_t i = 0; i < plan_.blocks; ++i) RunSharedBlock(context, u, i);
    }
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return workspace_.total(); }
  size_t retained_bytes() const override { return kept_.valid() ? kept_.bytes() : 0; }

 private:
  static size_t SlotBytes(int64_t elements) { return RoundUp(elements, 16) * sizeof(float); }
  float* Slot(const KernelContext& context, size_t offset, int64_t slot, int64_t elements) const {
    return static_cast<float*>(
        At(context.workspace, offset + static_cast<size_t>(slot) * SlotBytes(elements)));
  }

  WinogradBlock BlockOf(int64_t index) const {
    WinogradBlock block;
    block.first = index * plan_.block;
    block.count = std::min(plan_.block, conv_.tiles.total() - block.first);
    block.padded = RoundUp(block.count, lanes_);
    block.input_channels = conv_.tiles.input_channels;
    // The odd line lets points lie in different sets of a cache.
    block.product_step = plan_.chunk * rows_ * block.padded + 16;
    return block;
  }

  double NanosecondsOf(int64_t tiles, int64_t output_channels) const {
    return 2.0 * static_cast<double>(conv_.tiles.points() * tiles) *
           static_cast<double>(conv_.tiles.input_channels * output_channels) / kFlopsPerNanosecond;
  }

  const float* Filters(const KernelContext& context) {
    const float* const w = Input<float>(context, 1);
    if (is_kept_) return kept_.data<float>().data();
    float* const u = kept_.valid() ? kept_.mutable_data<float>().data()
                                   : static_cast<float*>(At(context.workspace, filters_));
    const double nanoseconds = static_cast<double>(conv_.filters.input_channels * rows_) * 10;
    ParallelFor(threads_, plan_.row_blocks, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      TransformWinogradFilters(conv_.tiles.m, conv_.filters, w, begin, end, u);
    });
    if (kept_.valid()) {
      const int64_t elements = conv_.filters.input_channels * conv_.filters.output_channels * 9;
      ReleaseMappedPages({reinterpret_cast<const std::byte*>(w), FloatBytes(elements)});
      is_kept_ = true;
    }
    return u;
  }

  // Row blocks of chunk `index`, from the block's inputs to the output.
  void RunChunk(const KernelContext& context, const WinogradBlock& block, const float* u,
                const float* v, int64_t index, int64_t slot) const {
    const int64_t begin = index * plan_.chunk;
    const int64_t end = std::min(plan_.row_blocks, begin + plan_.chunk);
    float* const products = Slot(context, products_, slot, product_elements_);
    MultiplyWinograd(conv_.tiles, block, u, v, begin, end, products);
    TransformWinogradOutput(
        conv_.tiles, block, products, conv_.bias ? Input<float>(context, 2) : nullptr,
        begin * rows_, std::min(conv_.tiles.output_channels, end * rows_),
        Slot(context, scratch_, slot, scratch_elements_), Output<float>(context, 0));
  }

  void RunBlocks(const KernelContext& context, const float* u) const {
    const double nanoseconds = NanosecondsOf(plan_.block, conv_.tiles.output_channels);
    ParallelForSlots(static_cast<int>(slots_), plan_.blocks, nanoseconds, 1,
                     [&](int slot, int64_t begin, int64_t end) {
                       float* const v = Slot(context, inputs_, slot, input_elements_);
                       for (int64_t i = begin; i < end; ++i) {
                         const WinogradBlock block = BlockOf(i);
                         TransformWinogradInput(conv_.tiles, block, Input<float>(context, 0), 0,
                                                conv_.tiles.input_channels,
                                                Slot(context, scratch_, slot, scratch_elements_),
                                                v);
                         for (int64_t chunk = 0; chunk < plan_.chunks; ++chunk) {
                           RunChunk(context, block, u, v, chunk, slot);
                         }
                       }
                     });
  }

  // One block by all threads: its input channels, then its output channels.
  void RunSharedBlock(const KernelContext& context, const float* u, int64_t index) const {
    const WinogradBlock block = BlockOf(index);
    const int64_t channels = conv_.tiles.input_channels;
    float* const v = Slot(context, inputs_, 0, input_elements_);
    const double transform = static_cast<double>(block.count) * 10;
    ParallelForSlots(static_cast<int>(slots_), channels, transform, 4,
                     [&](int slot, int64_t begin, int64_t end) {
                       TransformWinogradInput(conv_.tiles, block, Input<float>(context, 0), begin,
                                              end, Slot(context, scratch_, slot, scratch_elements_),
                                              v);
                     });
    ParallelForSlots(static_cast<int>(slots_), plan_.chunks,
                     NanosecondsOf(block.count, plan_.chunk * rows_), 1,
                     [&](int slot, int64_t begin, int64_t end) {
                       for (int64_t chunk = begin; chunk < end; ++chunk) {
                         RunChunk(context, block, u, v, chunk, slot);
                       }
                     });
  }

  const WinogradConv conv_;
  const int threads_;
  const int64_t rows_;  // output channels of a row block
  const int64_t lanes_;
  const Plan plan_;
  int64_t slots_ = 1;
  int64_t input_elements_ = 0;    // of a slot
  int64_t product_elements_ = 0;  // of a slot
  int64_t scratch_elements_ = 0;  // of a slot
  WorkspaceLayout workspace_;
  size_t inputs_ = 0;
  size_t products_ = 0;
  size_t scratch_ = 0;
  size_t filters_ = 0;
  Tensor kept_;
  bool is_kept_ = false;
};

// ---- The rule, in multiplications for each pair of channels. The numbers are from
// winograd_benchmark on a core with AVX-512 and 2 MiB of second-level cache.

// What oneDNN reaches of the rate of our products.
constexpr double kDefinitionRate = 0.9;
// Gains below that are within the spread of measurements.
constexpr double kWorthwhile = 0.9;
// Transforming an element of a tile, for each channel.
constexpr double kInputWork = 40;
constexpr double kOutputWork = 25;
// Making an element of transformed filters in a cache; where they do not fit, making it in memory
// and reading it from there.
constexpr double kFilterWork = 50;
constexpr double kFilterWrite = 110;
constexpr double kFilterRead = 12;

double WorkOf(const WinogradTiles& tiles, bool constant) {
  const double input_channels = static_cast<double>(tiles.input_channels);
  const double output_channels = static_cast<double>(tiles.output_channels);
  const double transforms = kInputWork / output_channels + kOutputWork / input_channels;
  const double points = static_cast<double>(tiles.points());
  const bool fit = points * input_channels * output_channels * sizeof(float) <= kCacheBytes;
  const double made = constant ? 0 : fit ? kFilterWork : kFilterWrite;
  const double filters = made + (fit ? 0 : kFilterRead);
  // A vector is worked on as a whole.
  const double padded = static_cast<double>(RoundUp(tiles.total(), 16));
  return points * (padded + static_cast<double>(tiles.total()) * transforms + filters);
}

}  // namespace

double WinogradError(int64_t m, int64_t input_channels) {
  constexpr double kUnit = 1.0 / (1 << 24);  // half of float32's last place
  const double growth = m == 4 ? 2 : m == 2 ? 0.75 : 1.25;
  return growth * kUnit * std::sqrt(static_cast<double>(input_channels));
}

int64_t ChooseWinogradTile(const WinogradTiles& tiles, bool constant, bool strict) {
  if (WinogradVectorsHere().lanes == 0) return 0;
  WinogradTiles chosen = tiles;
  if (strict) chosen.batch = 1;
  const double definition = 9.0 * static_cast<double>(chosen.batch * tiles.output_height) *
                            static_cast<double>(tiles.output_width) / kDefinitionRate;
  double min_work = definition * kWorthwhile;
  int64_t choice = 0;
  for (const int64_t m : {2, 4}) {
    chosen.m = m;
    if (WinogradError(m, chosen.input_channels) > kWinogradErrorLimit) continue;
    const double work = WorkOf(chosen, constant);
    if (work >= min_work) continue;
    min_work = work;
    choice = m;
  }
  return choice;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeWinogradConv(const PrepareContext& context,
                                                         const WinogradConv& conv) {
  auto kernel = std::make_unique<WinogradKernel>(conv, context.threads());
  WEFT_RETURN_IF_ERROR(kernel->AddFilters(context.InputIsConstant(1)));
  return kernel;
}

}  // namespace weft::cpu
