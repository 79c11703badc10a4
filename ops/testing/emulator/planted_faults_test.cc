// Proves the emulator: mistakes that kernels are known to have are found, and the same bodies
// without them are not reported.
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/body_runner.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 8;

std::vector<float> Count(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

// `run` launches a body, which has a mistake if it is told so. It is reported with `text` in each
// order of the threads, and never without the mistake.
void ExpectFound(const std::string& text,
                 const std::function<void(BodyRunner& runner, bool faulty)>& run) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    BodyRunner right(seed);
    run(right, false);
    EXPECT_EQ(right.Finish(), absl::OkStatus()) << "without a mistake, seed " << seed;
    BodyRunner wrong(EmulatedDeviceOptions{.seed = seed, .max_steps = 100'000});
    run(wrong, true);
    EXPECT_EQ(wrong.Finish().code(), absl::StatusCode::kInternal) << "seed " << seed;
    EXPECT_THAT(wrong.device().reports(), Contains(HasSubstr(text))) << "seed " << seed;
  }
}

TEST(PlantedFaultsTest, BarrierMissingAfterAWriteToSharedMemory) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(64);
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 64>();
      shared[gpu.thread()] = 1.0F;
      if (!faulty) gpu.Barrier();
      gpu.Global(y)[gpu.thread()] = shared[(gpu.thread() + 32) % 64];
    });
  });
}

TEST(PlantedFaultsTest, BarrierMissingBeforeSharedMemoryIsUsedAgain) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(64);
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 64>();
      float sum = 0;
      for (int round = 0; round < 3; ++round) {
        shared[gpu.thread()] = static_cast<float>(round);
        gpu.Barrier();
        sum += shared[63 - gpu.thread()];
        if (!faulty) gpu.Barrier();
      }
      gpu.Global(y)[gpu.thread()] = sum;
    });
  });
}

TEST(PlantedFaultsTest, ReadsOneElementTooFar) {
  ExpectFound("reads 4 bytes at allocation 1 + 400, outside of its 400 bytes",
              [](BodyRunner& runner, bool faulty) {
                const float* const x = runner.Input(Count(100));
                runner.device().Describe(x, "allocation 1");
                float* const y = runner.Memory<float>(101);
                runner.Launch({.threads = 128}, [=](auto& gpu) {
                  const int i = gpu.thread();
                  if (faulty ? i <= 100 : i < 100) gpu.Global(y)[i] = gpu.Global(x)[i];
                });
              });
}

TEST(PlantedFaultsTest, WritesOneElementTooFar) {
  ExpectFound("writes 4 bytes at y + 400, outside of its 400 bytes",
              [](BodyRunner& runner, bool faulty) {
                float* const y = runner.Memory<float>(100);
                runner.device().Describe(y, "y");
                runner.Launch({.blocks = 4, .threads = 32}, [=](auto& gpu) {
                  const int64_t i = gpu.index();
                  if (faulty ? i <= 100 : i < 100) gpu.Global(y)[i] = 1.0F;
                });
              });
}

TEST(PlantedFaultsTest, ReadsBeforeTheBegin) {
  ExpectFound("reads 4 bytes at x - 4", [](BodyRunner& runner, bool faulty) {
    const float* const x = runner.Input(Count(32));
    runner.device().Describe(x, "x");
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      const int i = gpu.thread();
      float value = 0;
      if (faulty || i > 0) value = gpu.Global(x)[i - 1];
      gpu.Global(y)[i] = value;
    });
  });
}

TEST(PlantedFaultsTest, IndexOfSharedMemoryTooLarge) {
  ExpectFound("writes 4 bytes at shared memory of 128 bytes + 128",
              [](BodyRunner& runner, bool faulty) {
                runner.Launch({.threads = 64}, [=](auto& gpu) {
                  const auto shared = gpu.template Shared<0, float, 32>();
                  if (gpu.thread() < (faulty ? 33 : 32)) shared[gpu.thread()] = 1.0F;
                });
              });
}

TEST(PlantedFaultsTest, IndexOfDynamicSharedMemoryTooLarge) {
  ExpectFound("at dynamic shared memory + 256, outside of its 256 bytes",
              [](BodyRunner& runner, bool faulty) {
                runner.Launch({.threads = 64, .shared_bytes = 256}, [=](auto& gpu) {
                  const auto first = gpu.template DynamicShared<float>(0);
                  const auto second = gpu.template DynamicShared<float>(faulty ? 132 : 128);
                  if (gpu.thread() < 32) first[gpu.thread()] = 1.0F;
                  if (gpu.thread() >= 32) second[gpu.thread() - 32] = 2.0F;
                });
              });
}

TEST(PlantedFaultsTest, TwoBlocksWriteOneElement) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(4);
    runner.Launch({.blocks = 4, .threads = 32}, [=](auto& gpu) {
      if (gpu.thread() == 0) gpu.Global(y)[faulty ? gpu.block() / 2 : gpu.block()] = 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, ABlockReadsWhatAnotherWrites) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Input(Count(64));
    runner.Launch({.blocks = 2, .threads = 32}, [=](auto& gpu) {
      const auto memory = gpu.Global(y);
      const int64_t other = faulty ? 63 - gpu.index() : gpu.index();
      const float value = memory[other];
      memory[gpu.index()] = value;
    });
  });
}

TEST(PlantedFaultsTest, TwoThreadsOfABlockWriteOneElement) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(64);
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      gpu.Global(y)[faulty ? gpu.thread() / 2 : gpu.thread()] = 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, RaceWithinAWarp) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 32>();
      shared[gpu.lane()] = static_cast<float>(gpu.lane());
      if (!faulty) gpu.WarpBarrier();
      gpu.Global(y)[gpu.lane()] = shared[31 - gpu.lane()];
    });
  });
}

TEST(PlantedFaultsTest, AShuffleDoesNotOrderMemory) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 32>();
      shared[gpu.lane()] = static_cast<float>(gpu.lane());
      const int lane = gpu.ShuffleXor(gpu.lane(), 31);
      if (!faulty) gpu.WarpBarrier();
      gpu.Global(y)[gpu.lane()] = shared[lane];
    });
  });
}

TEST(PlantedFaultsTest, AWarpBarrierDoesNotOrderWarps) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(64);
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 64>();
      shared[gpu.thread()] = 1.0F;
      if (faulty) {
        gpu.WarpBarrier();
      } else {
        gpu.Barrier();
      }
      gpu.Global(y)[gpu.thread()] = shared[63 - gpu.thread()];
    });
  });
}

TEST(PlantedFaultsTest, ReadsGlobalMemoryThatNobodyWrote) {
  ExpectFound("which nobody has written", [](BodyRunner& runner, bool faulty) {
    float* const sum = runner.Memory<float>(1);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      if (gpu.thread() != 0) return;
      const auto memory = gpu.Global(sum);
      if (!faulty) memory[0] = 0.0F;
      memory[0] += 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, ReadsSharedMemoryThatNobodyWrote) {
  ExpectFound("which nobody has written", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(1);
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 64>();
      if (!faulty || gpu.thread() < 50) shared[gpu.thread()] = 1.0F;
      gpu.Barrier();
      if (gpu.thread() == 0) gpu.Global(y)[0] = shared[50];
    });
  });
}

TEST(PlantedFaultsTest, SharedMemoryDoesNotOutliveItsBlock) {
  ExpectFound("which nobody has written", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(2);
    runner.Launch({.blocks = 2, .threads = 32}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, float, 1>();
      if (gpu.thread() != 0) return;
      if (!faulty || gpu.block() == 0) shared[0] = 3.0F;
      gpu.Global(y)[gpu.block()] = shared[0];
    });
  });
}

TEST(PlantedFaultsTest, WritesWhatItMayOnlyRead) {
  ExpectFound("writes 4 bytes at x + 0, which may only be read",
              [](BodyRunner& runner, bool faulty) {
                float* const x = runner.Input(Count(4));
                float* const y = runner.Memory<float>(4);
                runner.device().Describe(x, "x", /*read_only=*/true);
                runner.Launch({.threads = 4}, [=](auto& gpu) {
                  if (gpu.thread() == 0) gpu.Global(faulty ? x : y)[0] = 1.0F;
                });
              });
}

TEST(PlantedFaultsTest, ReachesAnotherTensor) {
  ExpectFound("that is other + 0", [](BodyRunner& runner, bool faulty) {
    float* const x = runner.Memory<float>(16);
    float* const other = runner.Memory<float>(16);
    runner.device().Describe(x, "x");
    runner.device().Describe(other, "other");
    const int64_t distance = other - x;
    runner.Launch({.threads = 1},
                  [=](auto& gpu) { gpu.Global(faulty ? x : other)[faulty ? distance : 0] = 1.0F; });
  });
}

TEST(PlantedFaultsTest, AHostPointer) {
  ExpectFound("outside of the device's allocations", [](BodyRunner& runner, bool faulty) {
    static float host_value = 0;
    float* const y = faulty ? &host_value : runner.Memory<float>(1);
    runner.Launch({.threads = 1}, [=](auto& gpu) { gpu.Global(y)[0] = 1.0F; });
  });
}

TEST(PlantedFaultsTest, PacketNotAligned) {
  ExpectFound("which is not a multiple of 16", [](BodyRunner& runner, bool faulty) {
    const float* const x = runner.Input(Count(64));
    float* const y = runner.Memory<float>(64);
    runner.Launch({.threads = 4}, [=](auto& gpu) {
      const int64_t i = 4 * gpu.thread();
      const auto packet = gpu.template Load<4>(gpu.Global(x) + (faulty ? 2 : 4), i);
      gpu.Store(gpu.Global(y), i, packet);
    });
  });
}

TEST(PlantedFaultsTest, PacketBeyondTheEnd) {
  ExpectFound("reads 16 bytes at x + 96, outside of its 108 bytes",
              [](BodyRunner& runner, bool faulty) {
                const float* const x = runner.Input(Count(27));
                runner.device().Describe(x, "x");
                float* const y = runner.Memory<float>(28);
                runner.Launch({.threads = 7}, [=](auto& gpu) {
                  const int64_t i = 4 * gpu.thread();
                  if (faulty || i + 4 <= 27) {
                    gpu.Store(gpu.Global(y), i, gpu.template Load<4>(gpu.Global(x), i));
                    return;
                  }
                  for (int64_t k = i; k < 27; ++k) gpu.Global(y)[k] = gpu.Global(x)[k];
                });
              });
}

TEST(PlantedFaultsTest, BarrierInABranch) {
  ExpectFound("waits for ever at Barrier", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      if (faulty && gpu.thread() == 5) return;
      gpu.Barrier();
    });
  });
}

TEST(PlantedFaultsTest, ABarrierForEachBranch) {
  ExpectFound("one barrier for each branch", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      if (faulty && gpu.warp() == 1) {
        gpu.Barrier();
      } else {
        gpu.Barrier();
      }
    });
  });
}

TEST(PlantedFaultsTest, ShuffleInABranch) {
  ExpectFound("waits for ever at ShuffleDown", [](BodyRunner& runner, bool faulty) {
    const int* const x = runner.Input(std::vector<int>(64, 1));
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      if (faulty && gpu.thread() >= 40) return;
      const int value = gpu.Global(x)[gpu.thread()];
      gpu.ShuffleDown(value, 1);
    });
  });
}

TEST(PlantedFaultsTest, ShuffleAndBarrierAtOnce) {
  ExpectFound("waits for ever at Shuffle", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      if (!faulty || gpu.thread() < 16) gpu.Shuffle(gpu.thread(), 0);
      gpu.Barrier();
    });
  });
}

TEST(PlantedFaultsTest, VoteInABranch) {
  ExpectFound("waits for ever at Any", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      if (faulty && gpu.lane() % 2 == 0) return;
      gpu.Any(gpu.lane() == 1);
    });
  });
}

TEST(PlantedFaultsTest, VotesAtDifferentPlaces) {
  ExpectFound("the threads of a warp meet at one place", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      if (faulty && gpu.lane() < 10) {
        gpu.Ballot(true);
      } else {
        gpu.Ballot(false);
      }
    });
  });
}

TEST(PlantedFaultsTest, ShuffleByTooMuch) {
  ExpectFound("by 32, which is not in [0, 32)", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 64},
                  [=](auto& gpu) { gpu.ShuffleXor(gpu.thread(), faulty ? 32 : 16); });
  });
}

// The first lane that votes writes for all; with a mask of the lanes before that is off, several
// do.
TEST(PlantedFaultsTest, LeadersByAWrongMask) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(1);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      const bool votes = gpu.lane() % 3 == 1;
      const uint32_t voters = gpu.Ballot(votes);
      const uint32_t before = (uint32_t{1} << gpu.lane()) - 1;
      const uint32_t mask = faulty ? before >> 8 : before;
      if (votes && (voters & mask) == 0) gpu.Global(y)[0] = 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, ShuffleFromALaneOfTheBlock) {
  ExpectFound("which is not in [0, 32)", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 64},
                  [=](auto& gpu) { gpu.Shuffle(1.0F, faulty ? gpu.thread() : gpu.lane()); });
  });
}

TEST(PlantedFaultsTest, ShuffleInAWarpThatIsNotWhole) {
  ExpectFound("in a warp of fewer than 32 threads", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = faulty ? 40 : 64},
                  [=](auto& gpu) { gpu.ShuffleXor(gpu.thread(), 1); });
  });
}

TEST(PlantedFaultsTest, SharedMemoryTooLarge) {
  ExpectFound("bytes of shared memory", [](BodyRunner& runner, bool faulty) {
    runner.Launch({.threads = 1}, [=](auto& gpu) {
      const auto first = gpu.template Shared<0, float, 10000>();
      first[0] = 1.0F;
      if (!faulty) return;
      const auto second = gpu.template Shared<1, float, 3000>();
      second[0] = 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, AtomicAndPlainAccess) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    int32_t* const count = runner.Input(std::vector<int32_t>(1, 0));
    runner.Launch({.threads = 64}, [=](auto& gpu) {
      const auto memory = gpu.Global(count);
      if (faulty && gpu.thread() == 40) {
        memory[0] = memory[0] + 1;
      } else {
        gpu.AtomicAdd(memory, 0, 1);
      }
    });
  });
}

TEST(PlantedFaultsTest, IndexBeyond32Bits) {
  ExpectFound("outside of its", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(64);
    const uint32_t rows = 1U << 20;
    const uint32_t columns = 5000;
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      // Element (thread, 0) of a tensor of which this memory has 64 elements from the middle on.
      const int64_t middle = int64_t{rows} * columns;
      const int64_t element =
          faulty ? static_cast<int64_t>(static_cast<int32_t>(rows * columns + gpu.thread()))
                 : middle + gpu.thread();
      (gpu.Global(y) - middle)[element] = 1.0F;
    });
  });
}

TEST(PlantedFaultsTest, UseAfterFree) {
  ExpectFound("which was freed", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(32);
    runner.device().scheduler().Pause();
    runner.Launch({.threads = 32}, [=](auto& gpu) { gpu.Global(y)[gpu.thread()] = 1.0F; });
    if (faulty) runner.Free(y);
    runner.device().scheduler().Resume();
  });
}

TEST(PlantedFaultsTest, ReadsWorkspaceThatWasFreed) {
  ExpectFound("which was freed", [](BodyRunner& runner, bool faulty) {
    float* const workspace = runner.Memory<float>(32);
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) { gpu.Global(workspace)[gpu.thread()] = 1.0F; });
    EXPECT_EQ(runner.stream().Synchronize(absl::Seconds(60)), absl::OkStatus());
    if (faulty) runner.Free(workspace);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      gpu.Global(y)[gpu.thread()] = gpu.Global(workspace)[gpu.thread()];
    });
  });
}

TEST(PlantedFaultsTest, MemoryGivenOutAgainIsUnwritten) {
  ExpectFound("which nobody has written", [](BodyRunner& runner, bool faulty) {
    float* first = runner.Input(Count(32));
    runner.Free(first);
    float* const second = faulty ? runner.Memory<float>(32) : runner.Input(Count(32));
    EXPECT_EQ(first, second);
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      gpu.Global(y)[gpu.thread()] = gpu.Global(second)[gpu.thread()];
    });
  });
}

TEST(PlantedFaultsTest, StreamsWithoutAnEvent) {
  ExpectFound("orders the two", [](BodyRunner& runner, bool faulty) {
    const auto other = runner.device().NewStream("other").value();
    const auto event = runner.device().NewEvent().value();
    float* const x = runner.Input(Count(32));
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32}, [=](auto& gpu) { gpu.Global(x)[gpu.thread()] *= 2.0F; });
    EXPECT_EQ(runner.stream().Record(*event), absl::OkStatus());
    if (!faulty) {
      EXPECT_EQ(other->Wait(*event), absl::OkStatus());
    }
    runner.LaunchOn(*other, {.threads = 32},
                    [=](auto& gpu) { gpu.Global(y)[gpu.thread()] = gpu.Global(x)[gpu.thread()]; });
    EXPECT_EQ(other->Synchronize(absl::Seconds(60)), absl::OkStatus());
  });
}

TEST(PlantedFaultsTest, AnInputIsWrittenWhileAnotherStreamReadsIt) {
  ExpectFound("orders the two", [](BodyRunner& runner, bool faulty) {
    const auto other = runner.device().NewStream("other").value();
    float* const x = runner.Input(Count(32));
    float* const y = runner.Memory<float>(32);
    runner.Launch({.threads = 32},
                  [=](auto& gpu) { gpu.Global(y)[gpu.thread()] = gpu.Global(x)[gpu.thread()]; });
    if (!faulty) {
      EXPECT_EQ(runner.stream().Synchronize(absl::Seconds(60)), absl::OkStatus());
    }
    const std::vector<float> ones(32, 1.0F);
    EXPECT_EQ(runner.device().CopyFromHost(*other, ones.data(), x, 128), absl::OkStatus());
    EXPECT_EQ(other->Synchronize(absl::Seconds(60)), absl::OkStatus());
  });
}

TEST(PlantedFaultsTest, CopiesToTheHostWhatNobodyWrote) {
  ExpectFound("nobody has written y + 124", [](BodyRunner& runner, bool faulty) {
    float* const y = runner.Memory<float>(32);
    runner.device().Describe(y, "y");
    runner.Launch({.threads = 32}, [=](auto& gpu) {
      if (gpu.thread() < (faulty ? 31 : 32)) gpu.Global(y)[gpu.thread()] = 1.0F;
    });
    runner.Read(y, 32);
  });
}

TEST(PlantedFaultsTest, EndlessLoop) {
  ExpectFound("has not ended after 100000 steps", [](BodyRunner& runner, bool faulty) {
    int32_t* const flag = runner.Input(std::vector<int32_t>(1, faulty ? 0 : 1));
    runner.Launch({.blocks = 3, .threads = 64}, [=](auto& gpu) {
      while (gpu.AtomicOr(gpu.Global(flag), 0, 0) == 0) {
      }
    });
  });
}

TEST(PlantedFaultsTest, TheLastBlockReadsWithoutAFence) {
  ExpectFound("a race", [](BodyRunner& runner, bool faulty) {
    int32_t* const count = runner.Input(std::vector<int32_t>(1, 0));
    float* const parts = runner.Memory<float>(8);
    float* const y = runner.Memory<float>(1);
    runner.Launch({.blocks = 8, .threads = 32}, [=](auto& gpu) {
      const auto shared = gpu.template Shared<0, int32_t, 1>();
      if (gpu.thread() == 0) {
        gpu.Global(parts)[gpu.block()] = 1.0F;
        if (!faulty) gpu.Fence();
        shared[0] = gpu.AtomicAdd(gpu.Global(count), 0, 1);
      }
      gpu.Barrier();
      if (shared[0] != 7 || gpu.thread() != 0) return;
      float sum = 0;
      for (int i = 0; i < 8; ++i) sum += gpu.Global(parts)[i];
      gpu.Global(y)[0] = sum;
    });
  });
}

// -- What is not reported but shows otherwise.

TEST(PlantedFaultsTest, ABlockTooLargeIsRefused) {
  BodyRunner runner;
  const auto nothing = [](auto&) {};
  EXPECT_EQ(runner.Launch({.threads = 1024}, nothing), 0);
  EXPECT_EQ(runner.Launch({.threads = 1056}, nothing), kCudaInvalidConfiguration);
  EXPECT_EQ(runner.Launch({.threads = 0}, nothing), kCudaInvalidConfiguration);
  EXPECT_EQ(runner.Launch({.blocks = int64_t{1} << 31}, nothing), kCudaInvalidConfiguration);
  EXPECT_EQ(runner.Launch({.blocks_y = 65536}, nothing), kCudaInvalidConfiguration);
  EXPECT_EQ(runner.Launch({.shared_bytes = 228 << 10}, nothing), kCudaInvalidValue);
  EXPECT_EQ(EmulateLaunch(runner.stream().native_handle(), {.threads = 256}, 128, nothing),
            kCudaInvalidConfiguration);
  EXPECT_EQ(EmulateLaunch(nullptr, {}, 1024, nothing), kCudaInvalidResourceHandle);
  EXPECT_EQ(runner.Launch({.blocks = 0}, nothing), 0);
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  EXPECT_EQ(runner.device().launches().size(), 1U);
}

TEST(PlantedFaultsTest, OrderOfAtomicsShowsInTheBits) {
  std::vector<std::vector<int32_t>> results;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    BodyRunner runner(seed);
    int32_t* const next = runner.Input(std::vector<int32_t>(1, 0));
    int32_t* const y = runner.Memory<int32_t>(64);
    runner.Launch({.blocks = 2, .threads = 32}, [=](auto& gpu) {
      const int32_t place = gpu.AtomicAdd(gpu.Global(next), 0, 1);
      gpu.Global(y)[place] = static_cast<int32_t>(gpu.index());
    });
    EXPECT_EQ(runner.Finish(), absl::OkStatus());
    results.push_back(runner.Read(y, 64));
  }
  for (size_t i = 1; i < results.size(); ++i) EXPECT_NE(results[i], results[0]);
}

}  // namespace
}  // namespace weft::testing
