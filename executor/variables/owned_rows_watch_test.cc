#include "executor/variables/owned_rows_watch.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/cpu_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPieceBytes = 65536;

// Each look at it takes `tick`, so that a piece that is read once takes one.
class TickingClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch(); }
  int64_t MonotonicNanos() override { return now_ += tick; }
  bool WaitUntil(CondVar&, Mutex&, absl::Time) override { return false; }

  int64_t tick = 0;

 private:
  int64_t now_ = 0;
};

class OwnedRowsWatchTest : public ::testing::Test {
 protected:
  OwnedRowsWatchTest() : store_(*device_), watch_(clock_, store_) {}

  // One of which this rank has so many bytes; `replicas` share it.
  void AddVariable(const std::string& name, int64_t bytes, int replicas) {
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kUint8;
    shard.local_shape = Shape({bytes});
    shard.global_shape = Shape({bytes * replicas});
    shard.data_shards = replicas;
    ASSERT_TRUE(store_.Add({shard}).ok());
    ASSERT_TRUE(watch_.Add({name}).ok());
  }
  // As a cosmic ray does it: past the store.
  void Flip(const std::string& name, int64_t byte) {
    const auto memory = store_.DevicePointer(name);
    ASSERT_TRUE(memory.ok()) << memory.status();
    static_cast<uint8_t*>(*memory)[byte] ^= 4;
  }

  const std::unique_ptr<Device> device_ = NewCpuDevice(DeviceInfo());
  TickingClock clock_;
  VariableStore store_;
  OwnedRowsWatch watch_;
};

TEST_F(OwnedRowsWatchTest, AnyByteThatFlipsBetweenTwoUpdatesIsFoundBeforeTheSecond) {
  constexpr int64_t kBytes = 2 * kPieceBytes + 100;
  AddVariable("w/exp_avg", kBytes, 2);
  AddVariable("w/exp_avg_sq", 8, 2);
  for (const int64_t byte :
       {int64_t{0}, int64_t{1}, kPieceBytes - 1, kPieceBytes, kBytes - 101, kBytes - 1}) {
    SCOPED_TRACE(byte);
    ASSERT_TRUE(watch_.AfterStep(11, kSecond).ok());
    EXPECT_EQ(watch_.watched_bytes(), kBytes + 8);
    Flip("w/exp_avg", byte);
    const absl::Status found = watch_.BeforeUpdates(12);
    EXPECT_TRUE(absl::IsDataLoss(found)) << found;
    const int64_t first = byte / kPieceBytes * kPieceBytes;
    EXPECT_THAT(std::string(found.message()),
                AllOf(HasSubstr("'w/exp_avg'"), HasSubstr(absl::StrCat("bytes ", first, " to ")),
                      HasSubstr("between the update of step 11 and that of step 12")));
  }
}

TEST_F(OwnedRowsWatchTest, WhatNothingHasTouchedIsNoFault) {
  AddVariable("m", 1000, 4);
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_TRUE(watch_.BeforeUpdates(step).ok());
    Flip("m", step);  // the update
    EXPECT_TRUE(watch_.AfterStep(step, kSecond).ok());
    EXPECT_EQ(watch_.watched_bytes(), 1000);
  }
  EXPECT_TRUE(watch_.BeforeUpdates(5).ok());
  // A step that is run again, as its loss was no number, has nothing to compare with any more.
  EXPECT_EQ(watch_.watched_bytes(), 0);
  EXPECT_TRUE(watch_.BeforeUpdates(5).ok());
}

// A resumed job, a repair, a state that another rank has handed over.
TEST_F(OwnedRowsWatchTest, AWriteThroughTheStoreIsNoFault) {
  AddVariable("m", 1000, 2);
  ASSERT_TRUE(watch_.AfterStep(3, kSecond).ok());
  const std::byte value{7};
  ASSERT_TRUE(store_.WritePart("m", 500, std::span(&value, 1)).ok());
  EXPECT_TRUE(watch_.BeforeUpdates(4).ok());
}

// Replicas have copies of it, which are compared with each other.
TEST_F(OwnedRowsWatchTest, WhatOthersHaveTooIsNotWatched) {
  AddVariable("w", 1000, 1);
  ASSERT_TRUE(watch_.AfterStep(0, kSecond).ok());
  EXPECT_EQ(watch_.watched_bytes(), 0);
  Flip("w", 10);
  EXPECT_TRUE(watch_.BeforeUpdates(1).ok());
  EXPECT_EQ(watch_.Add({"nobody"}).code(), absl::StatusCode::kNotFound);
}

// A piece that is read twice takes 2 of 100 parts of a step: each step has time for half a piece.
TEST_F(OwnedRowsWatchTest, GoesRoundInAHundredthOfTheTimeOfTheSteps) {
  constexpr int64_t kPieces = 10;
  AddVariable("m", kPieces * kPieceBytes, 2);
  clock_.tick = 1'000'000;
  int64_t read = 0;
  for (int64_t step = 0; step < 200; ++step) {
    ASSERT_TRUE(watch_.AfterStep(step, 100'000'000).ok());
    read += watch_.watched_bytes() / kPieceBytes;
    ASSERT_TRUE(watch_.BeforeUpdates(step + 1).ok());
  }
  EXPECT_GE(read, 95);
  EXPECT_LE(read, 101);

  // Wherever it flips for good, a round of 2 * kPieces steps comes by once.
  int found = 0;
  for (int64_t step = 200; step < 200 + 2 * kPieces + 1; ++step) {
    ASSERT_TRUE(watch_.AfterStep(step, 100'000'000).ok());
    Flip("m", 7 * kPieceBytes + 5);
    if (!watch_.BeforeUpdates(step + 1).ok()) ++found;
  }
  EXPECT_GE(found, 1);
  EXPECT_LE(found, 2);
}

}  // namespace
}  // namespace weft
