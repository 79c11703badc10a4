// A lazy device does what a stream was given in order, only when it must, and no stream before its
// turn. A watched device leaves out the one call that it is told.
#include "tensor/testing/lazy_device.h"

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kPatient = absl::Seconds(30);

class LazyDeviceTest : public ::testing::Test {
 protected:
  LazyDeviceTest() {
    first_ = device_.NewStream("first").value();
    second_ = device_.NewStream("second").value();
    event_ = device_.NewEvent().value();
  }
  // Notes the number when it runs.
  void Add(Stream& stream, int number) {
    actions_.push_back([this, number] { ran_.push_back(number); });
    ASSERT_TRUE(stream
                    .Enqueue({[](void* argument, Stream&) {
                                (*static_cast<std::function<void()>*>(argument))();
                                return absl::OkStatus();
                              },
                              &actions_.back()})
                    .ok());
  }

  // Streams do at their end what is left, so these outlive them.
  std::list<std::function<void()>> actions_;
  std::vector<int> ran_;
  LazyDevice device_;
  std::unique_ptr<Stream> first_;
  std::unique_ptr<Stream> second_;
  std::unique_ptr<Event> event_;
};

TEST_F(LazyDeviceTest, NothingRunsBeforeTheHostWaits) {
  Add(*first_, 1);
  Add(*second_, 2);
  Add(*first_, 3);
  EXPECT_THAT(ran_, IsEmpty());
  ASSERT_TRUE(first_->Synchronize(kPatient).ok());
  EXPECT_THAT(ran_, ElementsAre(1, 3));
  ASSERT_TRUE(second_->Synchronize(kPatient).ok());
  EXPECT_THAT(ran_, ElementsAre(1, 3, 2));
}

TEST_F(LazyDeviceTest, AStreamGoesOnAsFarAsAnotherWaitsForIt) {
  Add(*first_, 1);
  ASSERT_TRUE(first_->Record(*event_).ok());
  Add(*first_, 2);
  Add(*second_, 3);
  ASSERT_TRUE(second_->Wait(*event_).ok());
  Add(*second_, 4);
  ASSERT_TRUE(second_->Synchronize(kPatient).ok());
  EXPECT_THAT(ran_, ElementsAre(3, 1, 4));
}

// What was waited for is the recording of then.
TEST_F(LazyDeviceTest, AWaitIsForTheLastRecordingBeforeIt) {
  Add(*first_, 1);
  ASSERT_TRUE(first_->Record(*event_).ok());
  ASSERT_TRUE(second_->Wait(*event_).ok());
  Add(*first_, 2);
  ASSERT_TRUE(first_->Record(*event_).ok());
  ASSERT_TRUE(second_->Synchronize(kPatient).ok());
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(LazyDeviceTest, WhoeverAsksOftenIfAnEventIsDoneWaitsForIt) {
  EXPECT_TRUE(event_->Done());
  Add(*first_, 1);
  ASSERT_TRUE(first_->Record(*event_).ok());
  Add(*first_, 2);
  EXPECT_FALSE(event_->Done());
  EXPECT_THAT(ran_, IsEmpty());
  for (int i = 0; i < 1000 && !event_->Done(); ++i) {
  }
  EXPECT_TRUE(event_->Done());
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(LazyDeviceTest, AnEagerStreamGoesOnAtOnceAsFarAsItMay) {
  LazyDevice device({}, "second");
  const auto first = device.NewStream("first").value();
  const auto second = device.NewStream("second").value();
  const auto event = device.NewEvent().value();
  Add(*first, 1);
  Add(*second, 2);
  EXPECT_THAT(ran_, ElementsAre(2));
  ASSERT_TRUE(first->Record(*event).ok());
  Add(*first, 3);
  ASSERT_TRUE(second->Wait(*event).ok());
  Add(*second, 4);
  EXPECT_THAT(ran_, ElementsAre(2, 1, 4));
}

TEST_F(LazyDeviceTest, AStreamThatEndsDoesWhatItWasGiven) {
  Add(*first_, 1);
  ASSERT_TRUE(first_->Record(*event_).ok());
  first_.reset();
  EXPECT_THAT(ran_, ElementsAre(1));
  EXPECT_TRUE(event_->Done());
  ASSERT_TRUE(second_->Wait(*event_).ok());
  EXPECT_TRUE(second_->Synchronize(kPatient).ok());
}

TEST_F(LazyDeviceTest, TheFirstErrorIsKeptAndEndsTheStreamsWork) {
  ASSERT_TRUE(first_
                  ->Enqueue({[](void*, Stream&) -> absl::Status {
                               return absl::DataLossError("the first");
                             },
                             nullptr})
                  .ok());
  Add(*first_, 1);
  EXPECT_EQ(first_->Synchronize(kPatient).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_EQ(first_->Synchronize(kPatient).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(second_->Synchronize(kPatient).ok());
}

// Copies are made when they must: so a host that does not wait reads and writes too early.
TEST_F(LazyDeviceTest, CopiesAreMadeAsLateAsTheRest) {
  const auto memory = device_.Allocate(4).value();
  int from = 5, to = 0;
  ASSERT_TRUE(device_.CopyFromHost(*first_, &from, memory->data(), 4).ok());
  ASSERT_TRUE(device_.CopyToHost(*first_, memory->data(), &to, 4).ok());
  from = 6;
  EXPECT_EQ(to, 0);
  ASSERT_TRUE(first_->Synchronize(kPatient).ok());
  EXPECT_EQ(to, 6);
  EXPECT_TRUE(device_.Verify().ok());
}

// Of the device or of the host.
TEST_F(LazyDeviceTest, MemoryThatGoesBackBeforeItsCopyIsNoticed) {
  for (const bool is_host : {false, true}) {
    for (const bool waits : {false, true}) {
      LazyDevice device;
      const auto stream = device.NewStream("copies").value();
      auto host = device.AllocateHostMemory(8).value();
      auto memory = device.Allocate(8).value();
      ASSERT_TRUE(device.CopyFromHost(*stream, host->data(), memory->data(), 8).ok());
      if (waits) {
        ASSERT_TRUE(stream->Synchronize(kPatient).ok());
      }
      (is_host ? host : memory).reset();
      EXPECT_EQ(device.Verify().ok(), waits) << device.Verify();
      // It is kept for the copy: nothing else is damaged.
      EXPECT_TRUE(stream->Synchronize(kPatient).ok());
    }
  }
}

TEST_F(LazyDeviceTest, AWaitThatTimesOutLeavesTheStreamAsItWas) {
  std::atomic<bool> is_open{false};
  ASSERT_TRUE(first_
                  ->Enqueue({[](void* argument, Stream&) {
                               static_cast<std::atomic<bool>*>(argument)->wait(false);
                               return absl::OkStatus();
                             },
                             &is_open})
                  .ok());
  Add(*first_, 1);
  ASSERT_TRUE(first_->Record(*event_).ok());
  ASSERT_TRUE(second_->Wait(*event_).ok());
  Add(*second_, 2);
  EXPECT_TRUE(absl::IsDeadlineExceeded(first_->Synchronize(absl::Milliseconds(1))));
  EXPECT_TRUE(absl::IsDeadlineExceeded(second_->Synchronize(absl::Milliseconds(1))));
  EXPECT_FALSE(event_->Done());
  is_open = true;
  is_open.notify_all();
  EXPECT_TRUE(second_->Synchronize(kPatient).ok());
  EXPECT_THAT(ran_, ElementsAre(1, 2));
  EXPECT_TRUE(event_->Done());
}

TEST(TestDevicesTest, HaveTheNameOfTheirOrder) {
  EXPECT_EQ(TestDeviceName(kOnCpu), "Cpu");
  EXPECT_EQ(TestDeviceName(kLazyOrder), "Lazy");
  EXPECT_EQ(TestDeviceName(7), "Seed7");
  for (const int order : {kOnCpu, kLazyOrder, 7}) {
    const TestDevices devices(order, 2);
    ASSERT_EQ(devices.all().size(), 2u);
    EXPECT_EQ(devices.all()[1]->info().index, 1);
    EXPECT_EQ(devices.all()[1]->info().host_accessible, order == kOnCpu);
    EXPECT_TRUE(devices.Verify().ok());
  }
}

TEST(WatchedDeviceTest, OneCallIsLeftOutAndAllAreNoted) {
  LazyDevice lazy;
  WatchedDeviceOptions options;
  options.without = OrderingPlace{"test", OrderingCall::kSynchronize, 1};
  WatchedDevice device(lazy, options);
  const auto memory = device.Allocate(4).value();
  const auto stream = device.NewStream("test").value();
  const auto event = device.NewEvent().value();
  int value = 0;
  for (int i = 0; i < 3; ++i) {
    const int next = i + 1;
    ASSERT_TRUE(device.CopyFromHost(*stream, &next, memory->data(), 4).ok());
    ASSERT_TRUE(stream->Record(*event).ok());
    ASSERT_TRUE(device.CopyToHost(*stream, memory->data(), &value, 4).ok());
    ASSERT_TRUE(stream->Synchronize(kPatient).ok());
    EXPECT_EQ(value, i == 1 ? 0 : next);
    while (!event->Done()) {
    }
  }
  const auto place = [](OrderingCall call, int64_t number) {
    return OrderingPlace{"test", call, number};
  };
  EXPECT_THAT(device.ordering(),
              ElementsAre(place(OrderingCall::kRecord, 0), place(OrderingCall::kSynchronize, 0),
                          place(OrderingCall::kRecord, 1), place(OrderingCall::kSynchronize, 1),
                          place(OrderingCall::kRecord, 2), place(OrderingCall::kSynchronize, 2)));
}

// What was given before is made when the stream ends.
TEST(WatchedDeviceTest, HangsAfterSoManyWaits) {
  LazyDevice lazy;
  WatchedDevice device(lazy);
  const auto memory = device.Allocate(4).value();
  const auto host = device.AllocateHostMemory(4).value();
  auto& value = *static_cast<int*>(host->data());
  auto stream = device.NewStream("test").value();
  const auto event = device.NewEvent().value();
  device.HangAfter(1);
  value = 1;
  ASSERT_TRUE(device.CopyFromHost(*stream, &value, memory->data(), 4).ok());
  ASSERT_TRUE(stream->Record(*event).ok());
  ASSERT_TRUE(stream->Synchronize(kPatient).ok());
  EXPECT_TRUE(event->Done());
  value = 2;
  ASSERT_TRUE(device.CopyToHost(*stream, memory->data(), &value, 4).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream->Synchronize(kPatient)));
  EXPECT_FALSE(event->Done());
  EXPECT_EQ(value, 2);
  stream.reset();
  EXPECT_EQ(value, 1);
  device.NeverHang();
  EXPECT_TRUE(event->Done());
}

}  // namespace
}  // namespace weft::testing
