#include "training/data/prefetching_source.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Rows that say what they are: step * 1000 + row. Counts the calls; can fail, and can hold readers
// up until it is told to go on.
class FakeRows final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    MutexLock lock(mutex_);
    ++calls_[{step, input.name, first}];
    changed_.NotifyAll();
    while (step == held_step_) changed_.Wait(mutex_);
    if (step == failing_step_) return absl::DataLossError("the row is damaged");
    for (int64_t i = 0; i < count; ++i) {
      static_cast<int32_t*>(target)[i] = static_cast<int32_t>(step * 1000 + first + i);
    }
    return absl::OkStatus();
  }
  int64_t held_bytes() const override { return 100; }

  void Hold(int64_t step) {
    MutexLock lock(mutex_);
    held_step_ = step;
    changed_.NotifyAll();
  }
  void FailAt(int64_t step) {
    MutexLock lock(mutex_);
    failing_step_ = step;
  }
  int Calls(int64_t step, const std::string& name, int64_t first) {
    MutexLock lock(mutex_);
    return calls_[{step, name, first}];
  }
  // Returns when somebody has asked for it.
  void AwaitCall(int64_t step, const std::string& name, int64_t first) {
    MutexLock lock(mutex_);
    while (calls_[{step, name, first}] == 0) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::tuple<int64_t, std::string, int64_t>, int> calls_;
  int64_t held_step_ = -1;
  int64_t failing_step_ = -1;
};

constexpr int64_t kBatch = 4;
constexpr int64_t kLastBatch = 2;  // of every third step

class PrefetchingSourceTest : public ::testing::Test {
 protected:
  void Start(int depth, int threads) {
    auto rows = std::make_unique<FakeRows>();
    rows_ = rows.get();
    source_ = std::make_unique<PrefetchingSource>(
        std::move(rows),
        [](int64_t step) { return std::pair(step % 3 == 2 ? kLastBatch : kBatch, step % 3 % 2); },
        PrefetchOptions{depth, threads, 1000});
  }

  absl::Status Ask(int64_t step, const std::string& name, int64_t first, int64_t count) {
    const FeedInput input{name, InputRole::kData, DType::kInt32, {}};
    std::vector<int32_t> values(static_cast<size_t>(count), -1);
    const absl::Status status = source_->Fill(step, input, first, count, values.data());
    for (int64_t i = 0; status.ok() && i < count; ++i) {
      EXPECT_EQ(values[static_cast<size_t>(i)], step * 1000 + first + i);
    }
    return status;
  }

  // What a step of two micro-batches asks for.
  void RunStep(int64_t step) {
    const int64_t half = (step % 3 == 2 ? kLastBatch : kBatch) / 2;
    for (const int64_t first : {int64_t{0}, half}) {
      for (const std::string name : {"x", "labels"}) {
        EXPECT_TRUE(Ask(step, name, first, half).ok());
      }
    }
  }

  FakeRows* rows_ = nullptr;
  std::unique_ptr<PrefetchingSource> source_;
};

TEST_F(PrefetchingSourceTest, GivesTheRowsOfTheStep) {
  for (const int threads : {1, 3}) {
    Start(/*depth=*/2, threads);
    for (int64_t step = 0; step < 30; ++step) RunStep(step);
  }
}

TEST_F(PrefetchingSourceTest, ReadsEachRowOnce) {
  Start(/*depth=*/2, /*threads=*/2);
  for (int64_t step = 0; step < 30; ++step) RunStep(step);
  for (int64_t step = 0; step < 30; ++step) {
    EXPECT_EQ(rows_->Calls(step, "x", 0), 1) << step;
    EXPECT_EQ(rows_->Calls(step, "labels", 0), 1) << step;
  }
}

TEST_F(PrefetchingSourceTest, ReadsAheadWhileAStepRuns) {
  Start(/*depth=*/2, /*threads=*/1);
  RunStep(0);
  RunStep(1);
  RunStep(2);
  ASSERT_TRUE(Ask(3, "x", 0, 2).ok());
  // Nobody asks for these yet; would wait for ever if they were not read ahead.
  rows_->AwaitCall(4, "x", 0);
  rows_->AwaitCall(5, "labels", 1);
}

TEST_F(PrefetchingSourceTest, ARowUnderWayIsWaitedFor) {
  Start(/*depth=*/1, /*threads=*/1);
  RunStep(0);
  rows_->Hold(4);
  RunStep(1);
  RunStep(2);
  ASSERT_TRUE(Ask(3, "x", 0, 2).ok());
  rows_->AwaitCall(4, "x", 0);
  std::thread releases([this] { rows_->Hold(-1); });
  RunStep(4);
  releases.join();
  EXPECT_EQ(rows_->Calls(4, "x", 0), 1);
}

TEST_F(PrefetchingSourceTest, AnErrorBelongsToItsStep) {
  Start(/*depth=*/2, /*threads=*/1);
  rows_->FailAt(5);
  for (int64_t step = 0; step < 5; ++step) RunStep(step);
  const absl::Status status = Ask(5, "x", 0, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "the row is damaged");
}

TEST_F(PrefetchingSourceTest, JumpsAndRepetitionsAreServed) {
  Start(/*depth=*/3, /*threads=*/2);
  for (const int64_t step : {0, 1, 2, 3, 3, 4, 0, 1, 100, 101, 99, 5, 6, 7}) RunStep(step);
}

TEST_F(PrefetchingSourceTest, OtherRequestsThanExpectedAreServed) {
  Start(/*depth=*/2, /*threads=*/2);
  RunStep(0);
  RunStep(1);
  ASSERT_TRUE(Ask(3, "x", 0, 4).ok());
  ASSERT_TRUE(Ask(4, "x", 1, 3).ok());
  ASSERT_TRUE(Ask(4, "other", 0, 1).ok());
  RunStep(6);
}

TEST_F(PrefetchingSourceTest, EndsWhileRowsAreRead) {
  Start(/*depth=*/2, /*threads=*/2);
  for (int64_t step = 0; step < 4; ++step) RunStep(step);
  source_.reset();
}

TEST_F(PrefetchingSourceTest, CountsItsMemory) {
  Start(/*depth=*/2, /*threads=*/1);
  EXPECT_EQ(source_->held_bytes(), 100);
  EXPECT_EQ(source_->max_bytes(), 100 + 3 * 1000);
  for (int64_t step = 0; step < 4; ++step) RunStep(step);
  rows_->AwaitCall(5, "labels", 1);  // so what comes before it was read
  EXPECT_GT(source_->held_bytes(), 100);
  EXPECT_LE(source_->held_bytes(), source_->max_bytes());
}

}  // namespace
}  // namespace weft
