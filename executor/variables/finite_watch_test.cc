#include "executor/variables/finite_watch.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSecond = 1'000'000'000;
// Of a piece: 64 KiB of floats.
constexpr int64_t kPiece = 16384;

// Each look at it takes `tick`, so that a piece that is looked at takes one.
class TickingClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch(); }
  int64_t MonotonicNanos() override {
    ++calls;
    return now_ += tick;
  }
  bool WaitUntil(CondVar&, Mutex&, absl::Time) override { return false; }

  int64_t tick = 0;
  int64_t calls = 0;

 private:
  int64_t now_ = 0;
};

// On each device of tensor/testing/test_device.h.
class FiniteWatchTest : public ::testing::TestWithParam<int> {
 protected:
  FiniteWatchTest() : store_(*device_), watch_(clock_, store_) {}

  void AddVariable(const std::string& name, DType dtype, int64_t elements) {
    VariableShard shard;
    shard.name = name;
    shard.dtype = dtype;
    shard.global_shape = shard.local_shape = Shape({elements});
    ASSERT_TRUE(store_.Add({shard}).ok());
  }
  // Makes one element of a float variable what it says.
  void Put(const std::string& name, int64_t element, float value) {
    ASSERT_TRUE(store_.WritePart(name, element * 4, std::as_bytes(std::span(&value, 1))).ok());
  }

  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
  TickingClock clock_;
  VariableStore store_;
  FiniteWatch watch_;
};

TEST_P(FiniteWatchTest, NamesTheVariableAndTheElementWhereverItIs) {
  AddVariable("w", DType::kFloat32, 3 * kPiece);
  ASSERT_TRUE(watch_.Add({"w"}).ok());
  ASSERT_TRUE(watch_.AfterStep(kSecond).ok());
  for (const int64_t element : {int64_t{0}, kPiece - 1, kPiece, 2 * kPiece + 7, 3 * kPiece - 1}) {
    FiniteWatch watch(clock_, store_);
    ASSERT_TRUE(watch.Add({"w"}).ok());
    Put("w", element, -kInfinity);
    const absl::Status status = watch.AfterStep(kSecond);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("variable 'w' has become -inf (element " + std::to_string(element) + ")"),
              HasSubstr("though the loss was finite")));
    Put("w", element, 1);
  }
}

// The end of a short run is seen when its values are read.
TEST_P(FiniteWatchTest, BeginsWhenStepsHaveTakenASecond) {
  AddVariable("w", DType::kFloat32, 2);
  ASSERT_TRUE(watch_.Add({"w"}).ok());
  Put("w", 1, kInfinity);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(watch_.AfterStep(kSecond / 10).ok());
  EXPECT_EQ(watch_.AfterStep(kSecond / 10).code(), absl::StatusCode::kOutOfRange);
}

TEST_P(FiniteWatchTest, TakesAHundredthOfTheTimeOfTheSteps) {
  AddVariable("w", DType::kFloat32, 10 * kPiece);
  ASSERT_TRUE(watch_.Add({"w"}).ok());
  clock_.tick = 1'000'000;
  ASSERT_TRUE(watch_.AfterStep(kSecond).ok());
  EXPECT_EQ(clock_.calls, 2);       // one piece of 1 ms
  const int64_t step = 10'000'000;  // a tenth of a piece's time is its hundredth
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(watch_.AfterStep(step).ok());
  EXPECT_EQ(clock_.calls, 2 * (1 + 100)) << "100 ms in 10 s of steps";
}

// A long step is no reason to look at the same values twice.
TEST_P(FiniteWatchTest, GoesRoundOnceAfterAStepAndSavesNothingUp) {
  AddVariable("a", DType::kFloat32, 2 * kPiece);
  AddVariable("b", DType::kFloat32, 1);
  ASSERT_TRUE(watch_.Add({"a", "b"}).ok());
  clock_.tick = 1;
  ASSERT_TRUE(watch_.AfterStep(100 * kSecond).ok());
  EXPECT_EQ(clock_.calls, 2 * 3);
  ASSERT_TRUE(watch_.AfterStep(0).ok());
  EXPECT_EQ(clock_.calls, 2 * 4);
}

TEST_P(FiniteWatchTest, GoesRoundAgainAndAgain) {
  AddVariable("a", DType::kFloat32, 2 * kPiece);
  AddVariable("b", DType::kBfloat16, 5);
  ASSERT_TRUE(watch_.Add({"a"}).ok());
  ASSERT_TRUE(watch_.AfterStep(kSecond).ok());
  ASSERT_TRUE(watch_.Add({"b", "a"}).ok());  // of a program that comes later
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(watch_.AfterStep(0).ok());
  Put("a", 3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(std::string(watch_.AfterStep(0).message()),
              HasSubstr("variable 'a' has become nan (element 3)"));
}

TEST_P(FiniteWatchTest, HalfPrecisionIsWatchedToo) {
  AddVariable("h", DType::kBfloat16, 5);
  ASSERT_TRUE(watch_.Add({"h"}).ok());
  const uint16_t infinity = 0x7f80;
  ASSERT_TRUE(store_.WritePart("h", 4 * 2, std::as_bytes(std::span(&infinity, 1))).ok());
  EXPECT_THAT(std::string(watch_.AfterStep(kSecond).message()),
              HasSubstr("variable 'h' has become inf (element 4)"));
}

TEST_P(FiniteWatchTest, LeavesOutWhatHoldsNoFloatsAndRefusesWhatIsNotThere) {
  AddVariable("n", DType::kInt64, 4);
  AddVariable("empty", DType::kFloat32, 0);
  ASSERT_TRUE(watch_.Add({"n", "empty"}).ok());
  ASSERT_TRUE(watch_.AfterStep(100 * kSecond).ok());
  EXPECT_EQ(clock_.calls, 0);
  const absl::Status status = watch_.Add({"gone"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no variable 'gone'"));
}

INSTANTIATE_TEST_SUITE_P(Devices, FiniteWatchTest,
                         ::testing::Values(testing::kOnCpu, testing::kLazyOrder, 1),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

}  // namespace
}  // namespace weft
