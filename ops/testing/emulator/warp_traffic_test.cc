#include "ops/testing/emulator/warp_traffic.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/body_runner.h"
#include "ops/testing/emulator/emulated_gpu.h"

namespace weft::testing {
namespace {

constexpr char kHere = 0, kThere = 0;

TrafficCount OfLanes(size_t bytes, bool is_shared, uintptr_t (*address_of)(uintptr_t lane)) {
  WarpTraffic traffic;
  for (int lane = 31; lane >= 0; --lane) {
    traffic.Add(lane, &kHere, address_of(static_cast<uintptr_t>(lane)), bytes, is_shared);
  }
  return traffic.Take();
}

TEST(WarpTrafficTest, NeighboursAreOneRequestOfWholeSectors) {
  const TrafficCount count = OfLanes(4, false, [](uintptr_t lane) { return 256 + 4 * lane; });
  EXPECT_EQ(count.requests, 1);
  EXPECT_EQ(count.sectors, 4);
  EXPECT_EQ(count.Coalescing(), 1.0);
}

TEST(WarpTrafficTest, AnOffsetTouchesOneSectorMore) {
  const TrafficCount count = OfLanes(4, false, [](uintptr_t lane) { return 260 + 4 * lane; });
  EXPECT_EQ(count.sectors, 5);
  EXPECT_EQ(count.needed_sectors, 4);
}

TEST(WarpTrafficTest, AStrideMovesASectorForEachLane) {
  const TrafficCount count = OfLanes(4, false, [](uintptr_t lane) { return 4096 * lane; });
  EXPECT_EQ(count.sectors, 32);
  EXPECT_EQ(count.Coalescing(), 0.125);
}

TEST(WarpTrafficTest, OnePlaceForAllIsOneSector) {
  const TrafficCount count = OfLanes(8, false, [](uintptr_t) { return uintptr_t{64}; });
  EXPECT_EQ(count.sectors, 1);
  EXPECT_EQ(count.Coalescing(), 1.0);
}

TEST(WarpTrafficTest, PlacesAndVisitsAreRequestsOfTheirOwn) {
  WarpTraffic traffic;
  traffic.Add(0, &kHere, 0, 4, false);
  traffic.Add(0, &kHere, 4, 4, false);
  traffic.Add(0, &kThere, 8, 4, false);
  traffic.Add(1, &kHere, 16, 4, false);
  EXPECT_EQ(traffic.Take().requests, 3);
  EXPECT_EQ(traffic.Take().requests, 0);
}

TEST(WarpTrafficTest, WordsOfOneBankTakeTurns) {
  EXPECT_EQ(OfLanes(4, true, [](uintptr_t lane) { return 4 * lane; }).shared_turns, 1);
  EXPECT_EQ(OfLanes(4, true, [](uintptr_t lane) { return 128 * lane; }).shared_turns, 32);
  EXPECT_EQ(OfLanes(4, true, [](uintptr_t lane) { return 132 * lane; }).shared_turns, 1);
  EXPECT_EQ(OfLanes(4, true, [](uintptr_t lane) { return 8 * lane; }).BankConflicts(), 2.0);
  // All read one word.
  EXPECT_EQ(OfLanes(4, true, [](uintptr_t) { return uintptr_t{12}; }).shared_turns, 1);
  // Two elements of a word, side by side.
  EXPECT_EQ(OfLanes(2, true, [](uintptr_t lane) { return 2 * lane; }).shared_turns, 1);
}

TEST(WarpTrafficTest, WideAccessesGoByPartsOfTheWarp) {
  const TrafficCount pairs = OfLanes(8, true, [](uintptr_t lane) { return 8 * lane; });
  EXPECT_EQ(pairs.shared_turns, 2);
  const TrafficCount packets = OfLanes(16, true, [](uintptr_t lane) { return 16 * lane; });
  EXPECT_EQ(packets.shared_turns, 4);
  EXPECT_EQ(packets.BankConflicts(), 1.0);
  EXPECT_EQ(OfLanes(16, true, [](uintptr_t lane) { return 128 * lane; }).shared_turns, 32);
}

// Columns of a square in shared memory, which a row of kPitch words may keep in different banks.
template <int kPitch>
struct TurnSquare {
  const float* from;
  float* to;
  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto square = gpu.template Shared<0, float, 32 * kPitch>();
    const auto source = gpu.Global(from);
    for (int i = 0; i < 32; ++i) {
      const float value = source[i * 32 + gpu.lane()];
      square[i * kPitch + gpu.lane()] = value;
    }
    gpu.Barrier();
    const auto target = gpu.Global(to);
    for (int i = 0; i < 32; ++i) {
      const float value = square[gpu.lane() * kPitch + i];
      target[i * 32 + gpu.lane()] = value;
    }
  }
};

template <int kPitch>
TrafficCount OfSquare(uint64_t seed) {
  BodyRunner runner(EmulatedDeviceOptions{.seed = seed, .counts_traffic = true});
  const float* const from = runner.Input(std::vector<float>(1024, 1.0f));
  EXPECT_EQ(
      runner.Launch({.threads = 32}, TurnSquare<kPitch>{from, runner.template Memory<float>(1024)}),
      0);
  EXPECT_TRUE(runner.Finish().ok());
  return runner.device().launches().at(0).traffic;
}

TEST(WarpTrafficTest, LaunchesAreCountedInAnyOrderOfThreads) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const TrafficCount plain = OfSquare<32>(seed);
    EXPECT_EQ(plain.requests, 64);
    EXPECT_EQ(plain.sectors, 256);
    EXPECT_EQ(plain.needed_sectors, 256);
    EXPECT_EQ(plain.shared_requests, 64);
    EXPECT_EQ(plain.shared_turns, 32 + 32 * 32);
    EXPECT_EQ(OfSquare<33>(seed).shared_turns, 64);
  }
}

TEST(WarpTrafficTest, NothingIsCountedUnlessAskedFor) {
  BodyRunner runner(1);
  const float* const from = runner.Input(std::vector<float>(1024, 1.0f));
  runner.Launch({.threads = 32}, TurnSquare<33>{from, runner.Memory<float>(1024)});
  ASSERT_TRUE(runner.Finish().ok());
  EXPECT_EQ(runner.device().launches().at(0).traffic.requests, 0);
  EXPECT_EQ(runner.device().launches().at(0).bytes_read, 4096);
}

}  // namespace
}  // namespace weft::testing
