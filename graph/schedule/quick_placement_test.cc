#include "graph/schedule/quick_placement.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "rapidcheck.h"

namespace weft {
namespace {

using enum PlacementSweep::Direction;

// No two blocks that meet in time overlap, by looking at each pair; and the arena ends where the
// highest one does.
bool IsLegal(const std::vector<TimedBlock>& blocks, const Placement& placement) {
  if (placement.offsets.size() != blocks.size()) return false;
  int64_t end = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].bytes == 0) continue;
    if (placement.offsets[i] < 0) return false;
    const int64_t end_of_block = placement.offsets[i] + blocks[i].bytes;
    end = std::max(end, end_of_block);
    for (size_t j = 0; j < i; ++j) {
      const bool meet = blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
      const bool overlap = placement.offsets[i] < placement.offsets[j] + blocks[j].bytes &&
                           placement.offsets[j] < end_of_block;
      if (meet && overlap && blocks[j].bytes > 0) return false;
    }
  }
  return end == placement.arena_bytes;
}

int64_t MaxAlive(const std::vector<TimedBlock>& blocks, int times) {
  int64_t max_alive = 0;
  for (int time = 0; time < times; ++time) {
    int64_t alive = 0;
    for (const TimedBlock& block : blocks) {
      alive += block.first <= time && time <= block.last ? block.bytes : 0;
    }
    max_alive = std::max(max_alive, alive);
  }
  return max_alive;
}

std::vector<TimedBlock> AnyBlocks(int times) {
  std::vector<TimedBlock> blocks;
  const int count = *rc::gen::inRange(0, 80);
  for (int i = 0; i < count; ++i) {
    const int a = *rc::gen::inRange(0, times);
    const int b = *rc::gen::inRange(0, times);
    blocks.push_back({*rc::gen::inRange<int64_t>(0, 30), std::min(a, b), std::max(a, b)});
  }
  return blocks;
}

TEST(QuickPlacementTest, NothingNeedsNothing) {
  EXPECT_EQ(PlacementSweep({}, 0).Place(kForward, 1).arena_bytes, 0);
  EXPECT_EQ(PlaceInTowers({}, 0).arena_bytes, 0);
}

TEST(QuickPlacementTest, SweepsOverlapNothing) {
  EXPECT_TRUE(rc::check("sweeps overlap nothing", [] {
    const int times = *rc::gen::inRange(1, 40);
    const std::vector<TimedBlock> blocks = AnyBlocks(times);
    const PlacementSweep sweep(blocks, times);
    for (const auto direction : {kForward, kBackward}) {
      for (const int long_time : {0, 3, times / 2, times + 1}) {
        const Placement placement = sweep.Place(direction, long_time);
        RC_ASSERT(IsLegal(blocks, placement));
        RC_ASSERT(placement.arena_bytes >= MaxAlive(blocks, times));
      }
    }
  }));
}

TEST(QuickPlacementTest, TowersOverlapNothing) {
  EXPECT_TRUE(rc::check("towers overlap nothing", [] {
    const int times = *rc::gen::inRange(1, 40);
    const std::vector<TimedBlock> blocks = AnyBlocks(times);
    RC_ASSERT(IsLegal(blocks, PlaceInTowers(blocks, times)));
  }));
}

// Blocks within blocks: each stretch of time has a block, and is then cut in two.
void AddNested(int first, int last, std::vector<TimedBlock>& blocks) {
  if (first > last) return;
  const int64_t bytes = *rc::gen::inRange<int64_t>(0, 100);
  blocks.push_back({bytes, first, last});
  if (first == last) return;
  const int middle = *rc::gen::inRange(first, last + 1);
  AddNested(first, middle - 1, blocks);
  AddNested(middle + 1, last, blocks);
}

TEST(QuickPlacementTest, TowersOfNestedBlocksReachTheBound) {
  EXPECT_TRUE(rc::check("towers of nested blocks reach the bound", [] {
    const int times = *rc::gen::inRange(1, 60);
    std::vector<TimedBlock> blocks;
    AddNested(0, times - 1, blocks);
    const Placement placement = PlaceInTowers(blocks, times);
    RC_ASSERT(IsLegal(blocks, placement));
    RC_ASSERT(placement.arena_bytes == MaxAlive(blocks, times));
  }));
}

TEST(QuickPlacementTest, ASweepTakesTheSmallestHoleThatFits) {
  // Holes of 3 at 1, of 2 at 5 and of 4 at 8 appear at time 1.
  const std::vector<TimedBlock> blocks = {{10, 0, 0}, {9, 0, 2}, {8, 0, 0}, {7, 0, 2},
                                          {6, 0, 0},  {5, 0, 2}, {7, 1, 2}};
  const Placement placement = PlacementSweep(blocks, 3).Place(kForward, 0);
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{0, 10, 19, 27, 34, 40, 19}));
}

TEST(QuickPlacementTest, ASweepJoinsHolesThatLieSideBySide) {
  const std::vector<TimedBlock> blocks = {{4, 0, 0}, {3, 0, 1}, {2, 0, 0}, {1, 0, 9}, {9, 2, 3}};
  const Placement placement = PlacementSweep(blocks, 10).Place(kForward, 0);
  EXPECT_EQ(placement.offsets[4], 0);
  EXPECT_EQ(placement.arena_bytes, 10);
}

TEST(QuickPlacementTest, WhatLivesLongAndWhatDoesNotLieAtBothEnds) {
  // One of 1 byte that stays, and between each two of them one of 1 byte that goes: from one end,
  // every other place would be a hole, too small for the last block.
  std::vector<TimedBlock> blocks;
  for (int time = 0; time < 8; ++time) {
    blocks.push_back({1, time, time + 1});
    blocks.push_back({1, time, 9});
  }
  blocks.push_back({1, 9, 9});
  const int64_t bound = MaxAlive(blocks, 10);
  const Placement split = PlacementSweep(blocks, 10).Place(kForward, 3);
  EXPECT_TRUE(IsLegal(blocks, split));
  EXPECT_LE(split.arena_bytes, bound + 1);
  for (size_t i = 1; i + 1 < blocks.size(); i += 2) {
    EXPECT_LT(split.offsets[i], 8) << "a block that stays";
  }
}

TEST(QuickPlacementTest, ABackwardSweepIsAForwardSweepOfTimeTurnedRound) {
  EXPECT_TRUE(rc::check("backward is forward turned round", [] {
    const int times = *rc::gen::inRange(1, 30);
    const std::vector<TimedBlock> blocks = AnyBlocks(times);
    std::vector<TimedBlock> turned = blocks;
    for (TimedBlock& block : turned) {
      block.first = times - 1 - block.first;
      block.last = times - 1 - block.last;
      std::swap(block.first, block.last);
    }
    for (const int long_time : {0, 4}) {
      RC_ASSERT(PlacementSweep(blocks, times).Place(kBackward, long_time).offsets ==
                PlacementSweep(turned, times).Place(kForward, long_time).offsets);
    }
  }));
}

}  // namespace
}  // namespace weft
