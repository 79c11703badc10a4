// Run under --config=tsan too: the hand-over is two atomic counters. At the end, jobs that use a
// device's memory, on each device of tensor/testing/test_device.h.
#include "executor/program/communication_thread.h"

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/status_macros.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(CommunicationThreadTest, JobsRunInOrderAfterTheirSignals) {
  int signals_given = 0;  // written before Signal, read by the jobs after it
  std::vector<int> seen;  // written by the jobs, read after FinishStep
  CommunicationThread thread(
      3, [](int i) { return i + 1; },
      [&](int i) {
        EXPECT_GE(signals_given, i + 1);
        seen.push_back(i);
        return absl::OkStatus();
      });
  for (int step = 0; step < 100; ++step) {
    seen.clear();
    signals_given = 0;
    thread.StartStep();
    signals_given = 3;
    for (int signal = 1; signal <= 3; ++signal) thread.Signal(signal);
    ASSERT_TRUE(thread.Await(3).ok());
    ASSERT_TRUE(thread.FinishStep().ok());
    ASSERT_THAT(seen, ElementsAre(0, 1, 2));
  }
}

TEST(CommunicationThreadTest, AJobDoesNotStartBeforeItsSignal) {
  std::atomic<int> started{0};
  CommunicationThread thread(
      2, [](int i) { return i == 0 ? 0 : 1; },
      [&](int) {
        ++started;
        return absl::OkStatus();
      });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  EXPECT_EQ(started, 1);
  thread.Signal(1);
  ASSERT_TRUE(thread.Await(2).ok());
  EXPECT_EQ(started, 2);
  ASSERT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, WhatAJobWroteIsSeenAfterAwait) {
  std::vector<int> results(10, -1);
  CommunicationThread thread(
      10, [](int) { return 0; },
      [&](int i) {
        results[i] = i * i;
        return absl::OkStatus();
      });
  thread.StartStep();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(thread.Await(i + 1).ok());
    EXPECT_EQ(results[i], i * i);
  }
  ASSERT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, TheFirstErrorEndsTheStepAndReachesEveryWait) {
  std::vector<int> ran;
  CommunicationThread thread(
      4, [](int) { return 0; },
      [&](int i) {
        ran.push_back(i);
        return i == 1 ? absl::UnavailableError("peer lost") : absl::OkStatus();
      });
  thread.StartStep();
  EXPECT_EQ(thread.Await(2).message(), "peer lost");
  EXPECT_EQ(thread.Await(4).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(thread.FinishStep().message(), "peer lost");
  EXPECT_THAT(ran, ElementsAre(0, 1));
}

TEST(CommunicationThreadTest, AStepAfterAFailedOneStartsClean) {
  bool fail = true;
  CommunicationThread thread(
      1, [](int) { return 1; },
      [&](int) { return fail ? absl::InternalError("once") : absl::OkStatus(); });
  thread.StartStep();
  thread.Signal(1);
  EXPECT_FALSE(thread.FinishStep().ok());
  fail = false;
  thread.StartStep();
  thread.Signal(1);
  EXPECT_TRUE(thread.Await(1).ok());
  EXPECT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, CancellingSkipsJobsThatWaitForSignals) {
  std::vector<int> ran;
  CommunicationThread thread(
      3, [](int i) { return i; },
      [&](int i) {
        ran.push_back(i);
        return absl::OkStatus();
      });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  thread.CancelStep();
  EXPECT_EQ(thread.Await(3).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(thread.FinishStep().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(ran, ElementsAre(0));
}

TEST(CommunicationThreadTest, CancellingAFinishedStepChangesNothing) {
  CommunicationThread thread(
      1, [](int) { return 0; }, [](int) { return absl::OkStatus(); });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  thread.CancelStep();
  EXPECT_TRUE(thread.FinishStep().ok());
  thread.StartStep();
  EXPECT_TRUE(thread.Await(1).ok());
  EXPECT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, ItEndsWithoutEverRunningAStep) {
  bool ran = false;
  {
    CommunicationThread thread(
        1, [](int) { return 0; },
        [&](int) {
          ran = true;
          return absl::OkStatus();
        });
  }
  EXPECT_FALSE(ran);
}

// ---- On a device

constexpr int kJobs = 3;
constexpr absl::Duration kPatientWait = absl::Seconds(30);

// As a step with collectives beside its compute list: the compute stream makes a number for each
// job, the jobs add 100 to it on the host, the compute stream doubles what comes back.
class NumbersBeside {
 public:
  explicit NumbersBeside(Device& device) : device_(device) {
    compute_ = *device.NewStream("compute");
    communication_ = *device.NewStream("communication");
    numbers_ = *device.Allocate(kJobs * sizeof(int64_t));
    doubles_ = *device.Allocate(kJobs * sizeof(int64_t));
    staging_ = *device.AllocateHostMemory(kJobs * sizeof(int64_t));
    for (int i = 0; i < kJobs; ++i) {
      signals_.push_back(*device.NewEvent());
      done_.push_back(*device.NewEvent());
    }
    thread_.emplace(
        kJobs, [](int i) { return i + 1; }, [this](int i) { return Run(i); });
  }
  ~NumbersBeside() {
    thread_.reset();
    communication_.reset();
    compute_.reset();
  }

  // 2 x (10 x step + job + 1 + 100), for each job.
  absl::StatusOr<std::vector<int64_t>> Step(int64_t step) {
    auto* const numbers = static_cast<int64_t*>(numbers_->data());
    auto* const doubles = static_cast<int64_t*>(doubles_->data());
    thread_->StartStep();
    for (int i = 0; i < kJobs; ++i) {
      WEFT_RETURN_IF_ERROR(Set(numbers + i, 10 * step + i + 1));
      WEFT_RETURN_IF_ERROR(compute_->Record(*signals_[static_cast<size_t>(i)]));
      thread_->Signal(i + 1);
    }
    for (int i = 0; i < kJobs; ++i) {
      WEFT_RETURN_IF_ERROR(thread_->Await(i + 1));
      WEFT_RETURN_IF_ERROR(compute_->Wait(*done_[static_cast<size_t>(i)]));
      WEFT_RETURN_IF_ERROR(Double(numbers + i, doubles + i));
    }
    std::vector<int64_t>& results = results_.emplace_back(kJobs);  // a late copy finds it
    WEFT_RETURN_IF_ERROR(
        device_.CopyToHost(*compute_, doubles, results.data(), kJobs * sizeof(int64_t)));
    WEFT_RETURN_IF_ERROR(thread_->FinishStep());
    WEFT_RETURN_IF_ERROR(compute_->Synchronize(kPatientWait));
    return results;
  }

 private:
  struct Item {
    const int64_t* from = nullptr;
    int64_t* to = nullptr;
    int64_t value = 0;
  };

  absl::Status Run(int i) {
    auto* const number = static_cast<int64_t*>(numbers_->data()) + i;
    auto* const staged = static_cast<int64_t*>(staging_->data()) + i;
    WEFT_RETURN_IF_ERROR(communication_->Wait(*signals_[static_cast<size_t>(i)]));
    WEFT_RETURN_IF_ERROR(device_.CopyToHost(*communication_, number, staged, sizeof(*staged)));
    WEFT_RETURN_IF_ERROR(communication_->Synchronize(kPatientWait));
    *staged += 100;
    WEFT_RETURN_IF_ERROR(device_.CopyFromHost(*communication_, staged, number, sizeof(*staged)));
    return communication_->Record(*done_[static_cast<size_t>(i)]);
  }
  absl::Status Set(int64_t* to, int64_t value) {
    items_.push_back({nullptr, to, value});
    return compute_->Enqueue({[](void* argument, Stream&) {
                                const Item& item = *static_cast<const Item*>(argument);
                                *item.to = item.value;
                                return absl::OkStatus();
                              },
                              &items_.back()});
  }
  absl::Status Double(const int64_t* from, int64_t* to) {
    items_.push_back({from, to, 0});
    return compute_->Enqueue({[](void* argument, Stream&) {
                                const Item& item = *static_cast<const Item*>(argument);
                                // Work without its order finds any number here.
                                *item.to =
                                    static_cast<int64_t>(2 * static_cast<uint64_t>(*item.from));
                                return absl::OkStatus();
                              },
                              &items_.back()});
  }

  Device& device_;
  std::list<Item> items_;
  std::list<std::vector<int64_t>> results_;
  std::shared_ptr<Buffer> numbers_, doubles_, staging_;
  std::vector<std::unique_ptr<Event>> signals_, done_;
  std::unique_ptr<Stream> compute_, communication_;
  std::optional<CommunicationThread> thread_;
};

std::vector<std::vector<int64_t>> ThreeSteps(Device& device) {
  NumbersBeside numbers(device);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 0; step < 3; ++step) {
    const auto results = numbers.Step(step);
    EXPECT_TRUE(results.ok()) << results.status();
    steps.push_back(results.ok() ? *results : std::vector<int64_t>());
  }
  return steps;
}

const std::vector<std::vector<int64_t>>& ExpectedSteps() {
  static const auto* const steps =
      new std::vector<std::vector<int64_t>>{{202, 204, 206}, {222, 224, 226}, {242, 244, 246}};
  return *steps;
}

class CommunicationOnDeviceTest : public ::testing::TestWithParam<int> {};

TEST_P(CommunicationOnDeviceTest, JobsAndComputeSeeEachOthersNumbers) {
  const std::unique_ptr<Device> device = testing::NewTestDevice(GetParam());
  for (int round = 0; round < 5; ++round) EXPECT_EQ(ThreeSteps(*device), ExpectedSteps());
  const absl::Status status = testing::VerifyTestDevice(*device);
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Devices, CommunicationOnDeviceTest,
                         ::testing::Values(testing::kOnCpu, testing::kLazyOrder, 1, 2, 3, 4),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

// What the last job of a step waits for, the jobs before it have waited for too: of those calls
// only the last in each step is needed.
TEST(CommunicationOrderTest, EachCallThatOrdersNumbersIsNeeded) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "work without its order is a race, which this sanitizer ends";
#endif
  using testing::OrderingCall;
  struct Place {
    std::string stream;
    OrderingCall call;
    bool is_needed_by_each_job;
    int calls_per_step;
  };
  for (const Place& place : {Place{"compute", OrderingCall::kRecord, true, kJobs},
                             Place{"compute", OrderingCall::kWait, false, kJobs},
                             Place{"compute", OrderingCall::kSynchronize, true, 1},
                             Place{"communication", OrderingCall::kWait, true, kJobs},
                             Place{"communication", OrderingCall::kSynchronize, true, kJobs},
                             Place{"communication", OrderingCall::kRecord, false, kJobs}}) {
    for (int64_t number = 0; number < 3 * place.calls_per_step; ++number) {
      const bool is_last = number % place.calls_per_step == place.calls_per_step - 1;
      if (!place.is_needed_by_each_job && !is_last) continue;
      const std::unique_ptr<Device> lazy = testing::NewTestDevice(testing::kLazyOrder);
      testing::WatchedDeviceOptions options;
      options.without = testing::OrderingPlace{place.stream, place.call, number};
      testing::WatchedDevice device(*lazy, options);
      EXPECT_NE(ThreeSteps(device), ExpectedSteps())
          << place.stream << " " << static_cast<int>(place.call) << " " << number;
    }
  }
}

}  // namespace
}  // namespace weft
