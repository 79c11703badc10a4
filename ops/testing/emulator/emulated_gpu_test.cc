// Bodies without mistakes give what they should, in each order of their threads.
#include "ops/testing/emulator/emulated_gpu.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/body_runner.h"

namespace weft::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EmulatedGpuTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  BodyRunner runner_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Seeds, EmulatedGpuTest, ::testing::Range<uint64_t>(1, 21));

std::vector<int32_t> Squares(size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i * i % 1009);
  return values;
}

TEST_P(EmulatedGpuTest, TreeReduction) {
  constexpr int kCount = 1000;
  const std::vector<int32_t> values = Squares(kCount);
  const int32_t* const x = runner_.Input(values);
  int32_t* const y = runner_.Memory<int32_t>(4);
  runner_.Launch({.blocks = 4, .threads = 128}, [=](auto& gpu) {
    const auto shared = gpu.template Shared<0, int32_t, 128>();
    int32_t sum = 0;
    for (int64_t i = gpu.index(); i < kCount; i += gpu.stride()) sum += gpu.Global(x)[i];
    shared[gpu.thread()] = sum;
    for (int width = 64; width > 0; width /= 2) {
      gpu.Barrier();
      if (gpu.thread() < width) shared[gpu.thread()] += shared[gpu.thread() + width];
    }
    if (gpu.thread() == 0) gpu.Global(y)[gpu.block()] = shared[0];
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  const std::vector<int32_t> sums = runner_.Read(y, 4);
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0),
            std::accumulate(values.begin(), values.end(), 0));
}

TEST_P(EmulatedGpuTest, ScanWithShuffles) {
  constexpr int kCount = 192;
  const std::vector<int32_t> values = Squares(kCount);
  const int32_t* const x = runner_.Input(values);
  int32_t* const y = runner_.Memory<int32_t>(kCount);
  runner_.Launch({.threads = kCount}, [=](auto& gpu) {
    const auto of_warps = gpu.template Shared<0, int32_t, 32>();
    int32_t sum = gpu.Global(x)[gpu.thread()];
    for (int delta = 1; delta < 32; delta *= 2) {
      const int32_t before = gpu.ShuffleUp(sum, delta);
      if (gpu.lane() >= delta) sum += before;
    }
    if (gpu.lane() == 31) of_warps[gpu.warp()] = sum;
    gpu.Barrier();
    for (int warp = 0; warp < gpu.warp(); ++warp) sum += of_warps[warp];
    gpu.Global(y)[gpu.thread()] = sum;
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  std::vector<int32_t> expected(kCount);
  std::partial_sum(values.begin(), values.end(), expected.begin());
  EXPECT_EQ(runner_.Read(y, kCount), expected);
}

TEST_P(EmulatedGpuTest, TiledTranspose) {
  constexpr int kRows = 37;
  constexpr int kColumns = 53;
  constexpr int kTile = 16;
  const std::vector<int32_t> values = Squares(kRows * kColumns);
  const int32_t* const x = runner_.Input(values);
  int32_t* const y = runner_.Memory<int32_t>(kRows * kColumns);
  runner_.Launch(
      {.blocks = 4, .threads = kTile * kTile, .blocks_y = 3, .shared_bytes = 4 * kTile * 17},
      [=](auto& gpu) {
        const auto tile = gpu.template DynamicShared<int32_t>(0);
        const int row = gpu.thread() / kTile;
        const int column = gpu.thread() % kTile;
        const auto first_row = static_cast<int>(gpu.block_y()) * kTile;
        const auto first_column = static_cast<int>(gpu.block()) * kTile;
        if (first_row + row < kRows && first_column + column < kColumns) {
          tile[row * 17 + column] =
              gpu.Global(x)[(first_row + row) * kColumns + first_column + column];
        }
        gpu.Barrier();
        if (first_column + row < kColumns && first_row + column < kRows) {
          gpu.Global(y)[(first_column + row) * kRows + first_row + column] =
              tile[column * 17 + row];
        }
      });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  std::vector<int32_t> expected;
  for (int column = 0; column < kColumns; ++column) {
    for (int row = 0; row < kRows; ++row) expected.push_back(values[row * kColumns + column]);
  }
  EXPECT_EQ(runner_.Read(y, expected.size()), expected);
}

TEST_P(EmulatedGpuTest, HistogramWithAtomics) {
  constexpr int kCount = 3000;
  const std::vector<int32_t> values = Squares(kCount);
  const int32_t* const x = runner_.Input(values);
  uint32_t* const y = runner_.Input(std::vector<uint32_t>(7, 0));
  runner_.Launch({.blocks = 5, .threads = 96}, [=](auto& gpu) {
    const auto counts = gpu.template Shared<0, uint32_t, 7>();
    if (gpu.thread() < 7) counts[gpu.thread()] = 0;
    gpu.Barrier();
    for (int64_t i = gpu.index(); i < kCount; i += gpu.stride()) {
      gpu.AtomicAdd(counts, gpu.Global(x)[i] % 7, uint32_t{1});
    }
    gpu.Barrier();
    if (gpu.thread() < 7) {
      gpu.AtomicAdd(gpu.Global(y), gpu.thread(), static_cast<uint32_t>(counts[gpu.thread()]));
    }
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  std::vector<uint32_t> expected(7, 0);
  for (const int32_t value : values) ++expected[static_cast<size_t>(value % 7)];
  EXPECT_EQ(runner_.Read(y, 7), expected);
}

// The block that ends last adds up what the others wrote: fences and an atomic order them.
TEST_P(EmulatedGpuTest, TheLastBlockAddsUp) {
  constexpr int kBlocks = 9;
  int32_t* const count = runner_.Input(std::vector<int32_t>{0});
  int32_t* const parts = runner_.Memory<int32_t>(kBlocks * 32);
  int32_t* const y = runner_.Memory<int32_t>(1);
  runner_.Launch({.blocks = kBlocks, .threads = 32}, [=](auto& gpu) {
    const auto is_last = gpu.template Shared<0, bool, 1>();
    gpu.Global(parts)[gpu.index()] = static_cast<int32_t>(gpu.index());
    gpu.Barrier();
    if (gpu.thread() == 0) {
      gpu.Fence();
      is_last[0] = gpu.AtomicAdd(gpu.Global(count), 0, 1) == kBlocks - 1;
    }
    gpu.Barrier();
    if (!is_last[0] || gpu.thread() != 0) return;
    int32_t sum = 0;
    for (int i = 0; i < kBlocks * 32; ++i) sum += gpu.Global(parts)[i];
    gpu.Global(y)[0] = sum;
    gpu.Global(parts)[0] = 0;
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(y, 1), ElementsAre(kBlocks * 32 * (kBlocks * 32 - 1) / 2));
}

TEST_P(EmulatedGpuTest, ShufflesGiveTheValuesOfTheirLanes) {
  int64_t* const y = runner_.Memory<int64_t>(4 * 64);
  runner_.Launch({.threads = 64}, [=](auto& gpu) {
    const auto memory = gpu.Global(y) + 4 * gpu.thread();
    const int64_t own = gpu.thread() * int64_t{1'000'000'007};
    memory[0] = gpu.Shuffle(own, 5);
    memory[1] = gpu.ShuffleXor(own, 3);
    memory[2] = gpu.ShuffleDown(own, 30);
    memory[3] = gpu.ShuffleUp(own, 30);
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  const std::vector<int64_t> values = runner_.Read(y, 4 * 64);
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    const int warp = thread - lane;
    const int64_t* const of_thread = &values[static_cast<size_t>(4 * thread)];
    EXPECT_EQ(of_thread[0] / 1'000'000'007, warp + 5);
    EXPECT_EQ(of_thread[1] / 1'000'000'007, warp + (lane ^ 3));
    EXPECT_EQ(of_thread[2] / 1'000'000'007, lane < 2 ? thread + 30 : thread);
    EXPECT_EQ(of_thread[3] / 1'000'000'007, lane < 30 ? thread : thread - 30);
  }
}

TEST_P(EmulatedGpuTest, VotesCountTheirWarp) {
  uint32_t* const y = runner_.Memory<uint32_t>(3 * 64);
  runner_.Launch({.threads = 64}, [=](auto& gpu) {
    const auto memory = gpu.Global(y) + 3 * gpu.thread();
    memory[0] = gpu.Ballot(gpu.thread() % 3 == 0 && gpu.thread() < 32);
    memory[1] = gpu.Any(gpu.thread() == 40) ? 1 : 0;
    memory[2] = gpu.All(gpu.thread() != 3) ? 1 : 0;
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  const std::vector<uint32_t> votes = runner_.Read(y, 3 * 64);
  for (size_t thread = 0; thread < 64; ++thread) {
    EXPECT_EQ(votes[3 * thread], thread < 32 ? 0x49249249U : 0U);
    EXPECT_EQ(votes[3 * thread + 1], thread < 32 ? 0U : 1U);
    EXPECT_EQ(votes[3 * thread + 2], thread < 32 ? 0U : 1U);
  }
}

TEST_P(EmulatedGpuTest, AtomicsReturnWhatWasThere) {
  int64_t* const x = runner_.Input(std::vector<int64_t>{5, 5, 5, 5, 5, 5});
  int64_t* const y = runner_.Memory<int64_t>(6);
  runner_.Launch({.threads = 1}, [=](auto& gpu) {
    const auto memory = gpu.Global(x);
    const auto old = gpu.Global(y);
    old[0] = gpu.AtomicAdd(memory, 0, int64_t{-7});
    old[1] = gpu.AtomicMax(memory, 1, int64_t{3});
    old[2] = gpu.AtomicMin(memory, 2, int64_t{-3});
    old[3] = gpu.AtomicExchange(memory, 3, int64_t{9});
    old[4] = gpu.AtomicOr(memory, 4, int64_t{8});
    old[5] = gpu.AtomicCompareExchange(memory, 5, int64_t{5}, int64_t{6});
    gpu.AtomicCompareExchange(memory, 5, int64_t{5}, int64_t{7});
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(y, 6), Each(5));
  EXPECT_THAT(runner_.Read(x, 6), ElementsAre(-2, 5, -3, 9, 13, 6));
}

struct Pair {
  int16_t first;
  float second;
};

TEST_P(EmulatedGpuTest, ElementsBehaveLikeTheirTypes) {
  const Pair* const pairs = runner_.Input(std::vector<Pair>{{1, 2.5F}, {3, 4.5F}});
  const Float16* const halves = runner_.Input(std::vector<Float16>{ToFloat16(1.5F)});
  float* const y = runner_.Input(std::vector<float>{1, 2, 3, 4});
  runner_.Launch({.threads = 1}, [=](auto& gpu) {
    const auto memory = gpu.Global(y);
    auto next = memory + 1;
    const Pair pair = gpu.Global(pairs)[1];
    memory[0] = pair.second;
    next[0] = next[1];
    next += 1;
    if (next[0] < 3.5F) next[0] *= 2;
    ++next;
    next[0] = static_cast<float>(next - memory) + Widen(gpu.Global(halves)[0]);
    next[0] -= 1;
    const auto whole = gpu.template Load<4>(memory, 0);
    gpu.Store(memory, 0, whole);
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(y, 4), ElementsAre(4.5F, 3, 6, 3.5F));
}

// Each thread of a grid runs once, and knows where it is.
TEST_P(EmulatedGpuTest, EachThreadRunsOnce) {
  constexpr int kThreads = 45;
  int32_t* const y = runner_.Input(std::vector<int32_t>(3 * 4 * 5 * kThreads, 0));
  runner_.Launch({.blocks = 3, .threads = kThreads, .blocks_y = 4, .blocks_z = 5}, [=](auto& gpu) {
    const int64_t block = (gpu.block_z() * 4 + gpu.block_y()) * gpu.blocks() + gpu.block();
    gpu.Global(y)[block * gpu.threads() + gpu.thread()] += 1;
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(y, 3 * 4 * 5 * kThreads), Each(1));
}

// A thread may wait for a thread of another block that runs beside it.
TEST_P(EmulatedGpuTest, ReadersOfOneElementAreNoRace) {
  const int32_t* const x = runner_.Input(std::vector<int32_t>{3});
  int32_t* const y = runner_.Memory<int32_t>(256);
  runner_.Launch({.blocks = 4, .threads = 64},
                 [=](auto& gpu) { gpu.Global(y)[gpu.index()] = gpu.Global(x)[0]; });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(y, 256), Each(3));
}

// Everyone reads in one epoch, one writes after the barrier: as reductions in place do.
TEST_P(EmulatedGpuTest, BarriersOrderReadersBeforeAWriter) {
  int32_t* const x = runner_.Input(std::vector<int32_t>{3});
  runner_.Launch({.threads = 128}, [=](auto& gpu) {
    const int32_t value = gpu.Global(x)[0];
    gpu.WarpBarrier();
    const int32_t again = gpu.Global(x)[0];
    gpu.Barrier();
    if (gpu.thread() == 77) gpu.Global(x)[0] = value + again;
  });
  ASSERT_EQ(runner_.Finish(), absl::OkStatus());
  EXPECT_THAT(runner_.Read(x, 1), ElementsAre(6));
}

TEST_P(EmulatedGpuTest, AWriterAmongReadersIsARace) {
  int32_t* const x = runner_.Input(std::vector<int32_t>{3});
  runner_.Launch({.threads = 128}, [=](auto& gpu) {
    const int32_t value = gpu.Global(x)[0];
    gpu.WarpBarrier();
    if (gpu.thread() == 77) gpu.Global(x)[0] = value;
  });
  EXPECT_THAT(std::string(runner_.Finish().message()), HasSubstr("a race"));
}

// Blocks are not ordered by their barriers.
TEST_P(EmulatedGpuTest, BarriersDoNotOrderBlocks) {
  int32_t* const x = runner_.Input(std::vector<int32_t>{3, 4});
  runner_.Launch({.blocks = 2, .threads = 32}, [=](auto& gpu) {
    if (gpu.thread() == 0) gpu.Global(x)[gpu.block()] = 1;
    gpu.Barrier();
    if (gpu.thread() == 1) gpu.Global(x)[1 - gpu.block()] = 2;
  });
  EXPECT_THAT(std::string(runner_.Finish().message()), HasSubstr("a race"));
}

}  // namespace
}  // namespace weft::testing
