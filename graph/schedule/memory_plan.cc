#include "graph/schedule/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph/schedule/offsets_over_time.h"
#include "tensor/buffer.h"

namespace weft {
namespace {

constexpr int64_t kArenaLimit = std::numeric_limits<int64_t>::max() / 4;

int64_t AlignUp(int64_t bytes) {
  const auto alignment = static_cast<int64_t>(kAlignment);
  return (bytes + alignment - 1) / alignment * alignment;
}

// What is placed as one piece: a buffer, or all buffers of a group side by side.
struct Block {
  int64_t bytes = 0;  // a multiple of kAlignment
  int first = 0;
  int last = 0;
  int64_t offset = -1;
  int first_time = 0;  // of ShortenTime
  int last_time = 0;
};

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

struct Blocks {
  std::vector<Block> blocks;
  std::vector<size_t> of_buffer;  // indices of blocks; those of a block follow each other in it
};

absl::StatusOr<Blocks> MakeBlocks(const std::vector<BufferLifetime>& buffers) {
  Blocks made;
  std::vector<Block>& blocks = made.blocks;
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
    Block& block = blocks[index];
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

int64_t LowerBound(const std::vector<Block>& blocks) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // from an instruction on
  changes.reserve(2 * blocks.size());
  for (const Block& block : blocks) {
    changes.emplace_back(block.first, block.bytes);
    changes.emplace_back(int64_t{block.last} + 1, -block.bytes);
  }
  // What ends comes before what begins.
  std::sort(changes.begin(), changes.end());
  int64_t alive = 0;
  int64_t max_alive = 0;
  for (const auto& [instruction, bytes] : changes) {
    alive += bytes;
    max_alive = std::max(max_alive, alive);
  }
  return max_alive;
}

// Numbers the instructions at which a block begins or ends; the others make no difference.
int ShortenTime(std::vector<Block>& blocks) {
  std::vector<int> instructions;
  for (const Block& block : blocks) {
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
  for (Block& block : blocks) {
    block.first_time = number(block.first);
    block.last_time = number(block.last);
  }
  return static_cast<int>(instructions.size());
}

// Puts blocks[i] for i in `order` each into the smallest gap between the placed blocks it meets in
// time. Returns the end of the highest block.
int64_t PlaceInOrder(const std::vector<int>& order, std::vector<Block>& blocks,
                     OffsetsOverTime& taken) {
  taken.Clear();
  int64_t arena = 0;
  for (int i : order) {
    Block& block = blocks[i];
    block.offset = 0;
    if (block.bytes == 0) continue;
    block.offset = taken.FindGap(block.first_time, block.last_time, block.bytes);
    taken.Take(block.first_time, block.last_time, block.offset, block.bytes);
    arena = std::max(arena, block.offset + block.bytes);
  }
  return arena;
}

// The orders that are tried; the best plan wins, the first one on a tie.
std::vector<std::vector<int>> CandidateOrders(const std::vector<Block>& blocks) {
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

// Places the blocks in `order`. While the arena is larger than `enough`, moves all topmost blocks
// to the front of the order and places them again, at most kPromotions times. All topmost blocks
// must move: every micro-batch has an identical block, so moving one does not lower the arena.
// Returns the size of the smallest arena seen, and its offsets.
constexpr int kPromotions = 16;
std::pair<int64_t, std::vector<int64_t>> PlaceWithPromotions(std::vector<int> order, int64_t enough,
                                                             std::vector<Block>& blocks,
                                                             OffsetsOverTime& taken) {
  int64_t best = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets(blocks.size());
  for (int round = 0; round <= kPromotions && (round == 0 || best > enough); ++round) {
    const int64_t arena = PlaceInOrder(order, blocks, taken);
    if (arena < best) {
      best = arena;
      for (size_t i = 0; i < blocks.size(); ++i) offsets[i] = blocks[i].offset;
    }
    const auto is_highest = [&](int i) {
      return blocks[i].bytes > 0 && blocks[i].offset + blocks[i].bytes == arena;
    };
    if (std::is_partitioned(order.begin(), order.end(), is_highest)) break;
    std::stable_partition(order.begin(), order.end(), is_highest);
  }
  return {best, std::move(offsets)};
}

// Of many blocks, an arena so near to the lower bound that more tries are not worth their time.
constexpr size_t kManyBlocks = 4096;
int64_t EnoughBytes(size_t blocks, int64_t lower_bound) {
  return blocks > kManyBlocks ? lower_bound + lower_bound / 128 : lower_bound;
}

}  // namespace

absl::StatusOr<int64_t> MinArenaBytes(const std::vector<BufferLifetime>& buffers) {
  absl::StatusOr<Blocks> made = MakeBlocks(buffers);
  if (!made.ok()) return made.status();
  return LowerBound(made->blocks);
}

absl::StatusOr<MemoryPlan> PlanMemory(const std::vector<BufferLifetime>& buffers,
                                      int64_t enough_bytes) {
  absl::StatusOr<Blocks> made = MakeBlocks(buffers);
  if (!made.ok()) return made.status();
  std::vector<Block>& blocks = made->blocks;
  MemoryPlan plan;
  plan.lower_bound_bytes = LowerBound(blocks);
  const int64_t enough = std::max(EnoughBytes(blocks.size(), plan.lower_bound_bytes), enough_bytes);
  plan.offsets.assign(buffers.size(), 0);
  plan.arena_bytes = std::numeric_limits<int64_t>::max();
  OffsetsOverTime taken(ShortenTime(blocks));
  for (const std::vector<int>& order : CandidateOrders(blocks)) {
    auto [arena, offsets] = PlaceWithPromotions(order, enough, blocks, taken);
    if (arena >= plan.arena_bytes) continue;
    plan.arena_bytes = arena;
    for (size_t i = 0; i < buffers.size(); ++i) {
      int64_t& offset = offsets[made->of_buffer[i]];
      plan.offsets[i] = offset;
      offset += AlignUp(buffers[i].bytes);
    }
    if (arena <= enough) break;
  }
  return plan;
}

}  // namespace weft
