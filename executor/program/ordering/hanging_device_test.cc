// A device that hangs in a step: what it may use does not go back before its streams have ended.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/lowering/testing/ordered_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"
#include "tensor/testing/watched_device.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

class HangingDeviceTest : public ::testing::TestWithParam<OrderedJob> {
 protected:
  static FakeDeviceOptions OptionsOf() {
    FakeDeviceOptions options;
    options.kind = GetParam().kind;
    return options;
  }

  // Runs steps of the job on a device that hangs after so many waits of the second. Its streams go
  // on when they end, and not before; the test fails where memory was given back by then. True
  // where the step did not come to that wait.
  static bool EndsWell(int64_t waits, bool check_numerics) {
    LazyDevice lazy(OptionsOf());
    WatchedDevice device(lazy);
    bool is_ok = false;
    {
      OrderedRun run(GetParam(), device);
      EXPECT_TRUE(run.status().ok()) << run.status();
      std::vector<StepResult> results(2);
      const int64_t first = GetParam().poisoned_step == 0 ? 1 : 0;
      (void)run.RunStep(first, results[0], check_numerics);
      device.HangAfter(waits);
      is_ok = run.RunStep(first + 2, results[1], check_numerics).ok();
      run.End();
    }
    EXPECT_TRUE(lazy.Verify().ok()) << lazy.Verify();
    return is_ok;
  }
};

TEST_P(HangingDeviceTest, NoMemoryGoesBackBeforeTheStreamsHaveEnded) {
  for (const bool check_numerics : {false, true}) {
    if (check_numerics && GetParam().name != "Guarded") continue;
    int64_t waits = 0;
    for (; !EndsWell(waits, check_numerics); ++waits) {
      SCOPED_TRACE(absl::StrCat("it hangs after ", waits, " waits"));
      ASSERT_LT(waits, 200);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(waits, 0) << "a step waits for the device at its end";
  }
}

// The last copies of a step are those of its reports, into tensors that are the caller's too.
TEST_P(HangingDeviceTest, ReportsStayUntilTheProgramHasEnded) {
  int64_t waits = 0;
  while (!EndsWell(waits, false)) ++waits;
  LazyDevice lazy(OptionsOf());
  WatchedDevice device(lazy);
  OrderedRun run(GetParam(), device);
  ASSERT_TRUE(run.status().ok()) << run.status();
  std::optional<StepResult> result(std::in_place);
  ASSERT_TRUE(run.RunStep(2, *result).ok());
  device.HangAfter(waits - 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(run.RunStep(3, *result)));
  const std::weak_ptr<Buffer> memory = result->reports.at("got").buffer();
  result.reset();
  EXPECT_FALSE(memory.expired()) << "the device may still write there";
  run.End();
  EXPECT_TRUE(memory.expired());
}

TEST_P(HangingDeviceTest, TheNextStepComesWhenTheFormerOneIsOver) {
  LazyDevice lazy(OptionsOf());
  WatchedDevice device(lazy);
  OrderedRun run(GetParam(), device);
  ASSERT_TRUE(run.status().ok()) << run.status();
  std::vector<StepResult> results(3);
  device.HangAfter(0);
  EXPECT_FALSE(run.RunStep(2, results[0]).ok());
  const absl::Status refused = run.RunStep(3, results[1]);
  EXPECT_TRUE(absl::IsDeadlineExceeded(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(HasSubstr("step 2 is still under way on "),
                               HasSubstr(device.info().name), HasSubstr("end the job")));
  device.NeverHang();
  const absl::Status again = run.RunStep(3, results[2]);
  EXPECT_TRUE(again.ok()) << again;
}

// Constants are copied while the program is made; the variable before that.
TEST_P(HangingDeviceTest, WhatIsMadeForAProgramStaysForItsCopies) {
  int64_t waits = 0;
  for (bool is_made = false; !is_made; ++waits) {
    SCOPED_TRACE(absl::StrCat("it hangs after ", waits, " waits"));
    ASSERT_LT(waits, 50);
    LazyDevice lazy(OptionsOf());
    WatchedDevice device(lazy);
    device.HangAfter(waits);
    {
      OrderedRun run(GetParam(), device);
      is_made = run.status().ok();
      run.End();
    }
    EXPECT_TRUE(lazy.Verify().ok()) << lazy.Verify();
  }
  EXPECT_GT(waits, 1);
}

INSTANTIATE_TEST_SUITE_P(Jobs, HangingDeviceTest, ::testing::ValuesIn(OrderedJobs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
