#include "platform/testing/fake_process.h"

#include <csignal>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

class FakeProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<Process> Start() {
    return *launcher_.Start(
        {.arguments = {"worker"}, .standard_output = {.kind = ProcessOutput::Kind::kPipe}});
  }

  FakeClock clock_;
  FakeProcessLauncher launcher_{clock_};
};

TEST_F(FakeProcessTest, RemembersWhatWasStarted) {
  const auto first = Start();
  const auto second = Start();
  EXPECT_NE(first->id(), second->id());
  ASSERT_EQ(launcher_.started().size(), 2u);
  EXPECT_THAT(launcher_.started()[0].arguments, ElementsAre("worker"));
}

TEST_F(FakeProcessTest, EndsWhenTheTestSaysSo) {
  const auto process = Start();
  EXPECT_EQ(process->Poll(), std::nullopt);
  launcher_.Exit(0, {.code = 3});
  EXPECT_EQ(process->WaitUntil(absl::InfiniteFuture()), ExitStatus{.code = 3});
  EXPECT_EQ(process->Signal(SIGTERM).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FakeProcessTest, WaitsByTheGivenClock) {
  const auto process = Start();
  std::thread waiter([this, &process] {
    EXPECT_EQ(process->WaitUntil(clock_.Now() + absl::Seconds(5)), std::nullopt);
  });
  clock_.AwaitWaiters(1);
  clock_.Advance(absl::Seconds(5));
  waiter.join();
}

TEST_F(FakeProcessTest, PrintsLinesThenEnds) {
  const auto process = Start();
  launcher_.Print(0, "listening");
  launcher_.Exit(0, {});
  EXPECT_EQ(*process->ReadLine(absl::InfiniteFuture()), "listening");
  EXPECT_EQ(process->ReadLine(absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(FakeProcessTest, RecordsSignalsAndDiesOfKill) {
  auto process = Start();
  ASSERT_TRUE(process->Signal(SIGTERM).ok());
  EXPECT_EQ(process->Poll(), std::nullopt);
  process.reset();
  EXPECT_THAT(launcher_.SignalsTo(0), ElementsAre(SIGTERM, SIGKILL));
}

TEST_F(FakeProcessTest, FailsToStartOnDemandOnce) {
  launcher_.FailNextStart(absl::ResourceExhaustedError("no more processes"));
  EXPECT_EQ(launcher_.Start({.arguments = {"worker"}}).status(),
            absl::ResourceExhaustedError("no more processes"));
  EXPECT_TRUE(launcher_.Start({.arguments = {"worker"}}).ok());
}

}  // namespace
}  // namespace weft::testing
