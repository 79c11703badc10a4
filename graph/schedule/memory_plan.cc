#include "graph/schedule/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph/schedule/offsets_over_time.h"
#include "graph/schedule/quick_placement.h"
#include "tensor/buffer.h"

namespace weft {
namespace {

constexpr int64_t kArenaLimit = std::numeric_limits<int64_t>::max() / 4;

int64_t AlignUp(int64_t bytes) {
  const auto alignment = static_cast<int64_t>(kAlignment);
  return (bytes + alignment - 1) / alignment * alignment;
}

absl::Status CheckLifetime(const BufferLifetime& buffer, size_t index) {
  if (buffer.bytes < 0 || buffer.first < 0 || buffer.last < buffer.first) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer ", index, " has ", buffer.bytes, " bytes and lives from ", buffer.first, " to ",
        buffer.last, "; expected bytes >= 0 and 0 <= first <= last"));
  }
  if (buffer.bytes > kArenaLimit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "buffer ", index, " needs ", buffer.bytes, " bytes; an arena holds at most ", kArenaLimit));
  }
  return absl::OkStatus();
}

// What is placed as one piece: a buffer, or all buffers of a group side by side. Bytes are
// multiples of kAlignment, times are instructions.
struct Blocks {
  std::vector<TimedBlock> blocks;
  std::vector<size_t> of_buffer;  // indices of blocks; those of a block follow each other in it
};

absl::StatusOr<Blocks> MakeBlocks(const std::vector<BufferLifetime>& buffers) {
  Blocks made;
  std::vector<TimedBlock>& blocks = made.blocks;
  blocks.reserve(buffers.size());
  made.of_buffer.reserve(buffers.size());
  std::map<int, size_t> block_of_group;
  int64_t total = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferLifetime& buffer = buffers[i];
    if (absl::Status status = CheckLifetime(buffer, i); !status.ok()) return status;
    size_t index = blocks.size();
    if (buffer.group >= 0) index = block_of_group.try_emplace(buffer.group, index).first->second;
    if (index == blocks.size()) blocks.push_back({0, buffer.first, buffer.last});
    made.of_buffer.push_back(index);
    TimedBlock& block = blocks[index];
    block.bytes += AlignUp(buffer.bytes);
    block.first = std::min(block.first, buffer.first);
    block.last = std::max(block.last, buffer.last);
    total += AlignUp(buffer.bytes);
    if (total > kArenaLimit) {
      return absl::ResourceExhaustedError(absl::StrCat("the buffers need more than ", kArenaLimit,
                                                       " bytes together (reached at buffer ", i,
                                                       ")"));
    }
  }
  return made;
}

// Numbers the instructions at which a block begins or ends; the others make no difference. Returns
// how many there are.
int ShortenTime(std::vector<TimedBlock>& blocks) {
  std::vector<int> instructions;
  instructions.reserve(2 * blocks.size());
  for (const TimedBlock& block : blocks) {
    instructions.push_back(block.first);
    instructions.push_back(block.last);
  }
  std::sort(instructions.begin(), instructions.end());
  instructions.erase(std::unique(instructions.begin(), instructions.end()), instructions.end());
  const auto number = [&](int instruction) {
    return static_cast<int>(
        std::lower_bound(instructions.begin(), instructions.end(), instruction) -
        instructions.begin());
  };
  for (TimedBlock& block : blocks) {
    block.first = number(block.first);
    block.last = number(block.last);
  }
  return static_cast<int>(instructions.size());
}

// The most bytes alive at once. Times are 0 .. times - 1.
int64_t LowerBound(const std::vector<TimedBlock>& blocks, int times) {
  std::vector<int64_t> changes(static_cast<size_t>(times) + 1);  // from a time on
  for (const TimedBlock& block : blocks) {
    changes[block.first] += block.bytes;
    changes[block.last + 1] -= block.bytes;
  }
  int64_t alive = 0;
  int64_t max_alive = 0;
  for (const int64_t bytes : changes) {
    alive += bytes;
    max_alive = std::max(max_alive, alive);
  }
  return max_alive;
}

// Keeps the smallest of the arenas that it is shown, the first of equal ones.
class BestPlacement {
 public:
  explicit BestPlacement(int64_t enough) : enough_(enough) {}
  // Whether no smaller one is wanted.
  bool Offer(Placement placement) {
    if (placement.arena_bytes < best_.arena_bytes) best_ = std::move(placement);
    return is_enough();
  }
  bool is_enough() const { return best_.arena_bytes <= enough_; }
  int64_t enough() const { return enough_; }
  Placement Take() { return std::move(best_); }

 private:
  int64_t enough_;
  Placement best_ = {{}, std::numeric_limits<int64_t>::max()};
};

// The ways that take next to no time. What a step needs decides which of them is the best, so the
// order is by how often one reached the bound for the layouts of programs.
void TryQuickWays(const std::vector<TimedBlock>& blocks, int times, BestPlacement& best) {
  using enum PlacementSweep::Direction;
  const PlacementSweep sweep(blocks, times);
  constexpr int kFew = 8;  // instructions that what comes and goes lives at most
  if (best.Offer(sweep.Place(kBackward, kFew))) return;
  if (best.Offer(PlaceInTowers(blocks, times))) return;
  // A part of the longest one: a step of many micro-batches is laid out as one of them is.
  int longest = 0;
  for (const TimedBlock& block : blocks) {
    longest = std::max(longest, block.last - block.first + 1);
  }
  for (const int long_time : {longest / 8, kFew, longest / 32, longest / 128, longest / 2, 0}) {
    if (best.Offer(sweep.Place(kForward, long_time))) return;
    if (long_time != kFew && best.Offer(sweep.Place(kBackward, long_time))) return;
  }
}

// Puts blocks[i] for i in `order` each into the smallest gap between the placed blocks it meets in
// time. nullopt when `taken` has looked `max_looks` times before all are placed.
std::optional<Placement> PlaceInOrder(const std::vector<int>& order,
                                      const std::vector<TimedBlock>& blocks, int64_t max_looks,
                                      OffsetsOverTime& taken) {
  taken.Clear();
  Placement placement;
  placement.offsets.assign(blocks.size(), 0);
  for (int i : order) {
    const TimedBlock& block = blocks[i];
    if (block.bytes == 0) continue;
    if (taken.looks() > max_looks) return std::nullopt;
    const int64_t offset = taken.FindGap(block.first, block.last, block.bytes);
    taken.Take(block.first, block.last, offset, block.bytes);
    placement.offsets[i] = offset;
    placement.arena_bytes = std::max(placement.arena_bytes, offset + block.bytes);
  }
  return placement;
}

// The orders that are tried by TryOrders.
std::vector<std::vector<int>> CandidateOrders(const std::vector<TimedBlock>& blocks) {
  std::vector<int> by_size(blocks.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::vector<int> by_area = by_size;
  std::vector<int> by_duration = by_size;
  const auto length = [&](int i) { return int64_t{blocks[i].last} - blocks[i].first + 1; };
  const auto sort = [](std::vector<int>& order, auto key) {
    std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  };
  sort(by_size, [&](int i) { return std::tuple(-blocks[i].bytes, -length(i), i); });
  sort(by_area, [&](int i) {
    return std::tuple(-static_cast<double>(blocks[i].bytes) * static_cast<double>(length(i)), i);
  });
  sort(by_duration, [&](int i) { return std::tuple(-length(i), -blocks[i].bytes, i); });
  return {by_size, by_area, by_duration};
}

// Moves all topmost blocks to the front of the order. All of them must move: every micro-batch has
// an identical block, so moving one does not lower the arena. False when they were there already.
bool PromoteHighest(const std::vector<TimedBlock>& blocks, const Placement& placement,
                    std::vector<int>& order) {
  const auto is_highest = [&](int i) {
    return blocks[i].bytes > 0 && placement.offsets[i] + blocks[i].bytes == placement.arena_bytes;
  };
  if (std::is_partitioned(order.begin(), order.end(), is_highest)) return false;
  std::stable_partition(order.begin(), order.end(), is_highest);
  return true;
}

// What TryOrders looks at for each order, at most: some milliseconds of few blocks, and some
// microseconds a block of many. It is counted, not timed, so that the same blocks get the same plan
// anywhere.
constexpr int64_t kLooks = int64_t{1} << 18;
constexpr int64_t kLooksPerBlock = 64;

// Places the blocks in several orders, again and again with the topmost ones moved to the front.
void TryOrders(const std::vector<TimedBlock>& blocks, int times, BestPlacement& best) {
  constexpr int kPromotions = 16;
  OffsetsOverTime taken(times);
  const int64_t looks = kLooks + kLooksPerBlock * static_cast<int64_t>(blocks.size());
  for (std::vector<int>& order : CandidateOrders(blocks)) {
    const int64_t max_looks = taken.looks() + looks;
    for (int round = 0; round <= kPromotions; ++round) {
      std::optional<Placement> placement = PlaceInOrder(order, blocks, max_looks, taken);
      if (!placement.has_value()) break;
      const bool is_promoted = PromoteHighest(blocks, *placement, order);
      if (best.Offer(*std::move(placement))) return;
      if (!is_promoted) break;
    }
  }
}

// Of many blocks, an arena so near to the lower bound that more tries are not worth their time.
constexpr size_t kManyBlocks = 1024;
int64_t EnoughBytes(size_t blocks, int64_t lower_bound) {
  return blocks > kManyBlocks ? lower_bound + lower_bound / 128 : lower_bound;
}

}  // namespace

absl::StatusOr<int64_t> MinArenaBytes(const std::vector<BufferLifetime>& buffers) {
  absl::StatusOr<Blocks> made = MakeBlocks(buffers);
  if (!made.ok()) return made.status();
  const int times = ShortenTime(made->blocks);
  return LowerBound(made->blocks, times);
}

absl::StatusOr<MemoryPlan> PlanMemory(const std::vector<BufferLifetime>& buffers,
                                      int64_t enough_bytes) {
  absl::StatusOr<Blocks> made = MakeBlocks(buffers);
  if (!made.ok()) return made.status();
  std::vector<TimedBlock>& blocks = made->blocks;
  MemoryPlan plan;
  const int times = ShortenTime(blocks);
  plan.lower_bound_bytes = LowerBound(blocks, times);
  BestPlacement best(std::max(EnoughBytes(blocks.size(), plan.lower_bound_bytes), enough_bytes));
  TryQuickWays(blocks, times, best);
  if (!best.is_enough()) TryOrders(blocks, times, best);
  Placement placement = best.Take();
  plan.arena_bytes = placement.arena_bytes;
  plan.offsets.reserve(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    int64_t& offset = placement.offsets[made->of_buffer[i]];
    plan.offsets.push_back(offset);
    offset += AlignUp(buffers[i].bytes);
  }
  return plan;
}

}  // namespace weft
