#include "executor/program/feed_staging.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "executor/program/await_event.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"

namespace weft {
namespace {

constexpr int kRounds = 5;

class FeedStagingTest : public ::testing::Test {
 protected:
  FeedStagingTest() {
    for (int i = 0; i < kRounds; ++i) staging_.Add(sizeof(int64_t));
    EXPECT_TRUE(staging_.Allocate(device_).ok());
    stream_ = *device_.NewStream("compute");
    targets_ = *device_.Allocate(kRounds * sizeof(int64_t));
  }

  void PutRound(int64_t round) {
    const auto memory = staging_.Next();
    ASSERT_TRUE(memory.ok()) << memory.status();
    *static_cast<int64_t*>(*memory) = 100 + round;
    ASSERT_TRUE(staging_
                    .Copy(device_, *stream_, static_cast<int64_t*>(targets_->data()) + round,
                          sizeof(int64_t))
                    .ok());
  }

  testing::FakeDevice device_;
  FeedStaging staging_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Buffer> targets_;
};

TEST_F(FeedStagingTest, TakesTwoBlocksOfTheLargestSizeAtMost) {
  FeedStaging staging;
  EXPECT_EQ(staging.bytes(), 0);
  staging.Add(10);
  EXPECT_EQ(staging.bytes(), 10);
  staging.Add(30);
  staging.Add(20);
  EXPECT_EQ(staging.bytes(), 60);
}

// While the device does nothing, two rounds go through; the third waits for the first one's copy,
// so that no copy finds the rows of another round.
TEST_F(FeedStagingTest, ABlockIsFilledAgainWhenItsCopyIsOver) {
  device_.scheduler().Pause();
  std::atomic<int> rounds{0};
  std::thread host([&] {
    for (int round = 0; round < kRounds; ++round) {
      PutRound(round);
      rounds = round + 1;
      rounds.notify_one();
    }
  });
  for (int seen = rounds; seen < 2; seen = rounds) rounds.wait(seen);
  EXPECT_EQ(rounds, 2);  // not one more, whatever the threads do: the device is paused
  device_.scheduler().Resume();
  host.join();
  std::vector<int64_t> values(kRounds);
  ASSERT_TRUE(
      device_.CopyToHost(*stream_, targets_->data(), values.data(), kRounds * sizeof(int64_t))
          .ok());
  ASSERT_TRUE(stream_->Synchronize(absl::Seconds(60)).ok());
  EXPECT_EQ(values, (std::vector<int64_t>{100, 101, 102, 103, 104}));
}

TEST_F(FeedStagingTest, AnEventThatDoesNotComeEndsTheWait) {
  const std::unique_ptr<Event> event = *device_.NewEvent();
  EXPECT_TRUE(AwaitEvent(*event, absl::ZeroDuration()).ok());  // was never recorded
  device_.scheduler().Pause();
  ASSERT_TRUE(stream_->Record(*event).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(AwaitEvent(*event, absl::Milliseconds(1))));
  device_.scheduler().Resume();
  EXPECT_TRUE(AwaitEvent(*event, absl::Seconds(60)).ok());
}

}  // namespace
}  // namespace weft
