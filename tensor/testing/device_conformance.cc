#include "tensor/testing/device_conformance.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "platform/mutex.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// How long a test waits for what will come; reached only by a broken device.
constexpr absl::Duration kPatience = absl::Seconds(30);

// Runs code in its turn on the stream, as work of the device under test does.
absl::Status InTurn(Stream& stream, std::function<void()> code) {
  const auto& launch = DeviceConformanceTest::GetParam().launch;
  if (launch != nullptr) return launch(stream, std::move(code));
  code();
  return absl::OkStatus();
}

// Work that appends a number to a list.
struct Append {
  std::vector<int>* list;
  int value;

  Work AsWork() { return Work{&Run, this}; }
  static absl::Status Run(void* argument, Stream& stream) {
    const Append& append = *static_cast<Append*>(argument);
    return InTurn(stream, [&append] { append.list->push_back(append.value); });
  }
};

// Work that fails.
struct Failure {
  std::string message;

  Work AsWork() { return Work{&Run, this}; }
  static absl::Status Run(void* argument, Stream&) {
    return absl::AbortedError(static_cast<Failure*>(argument)->message);
  }
};

// Work that waits until the test opens it.
class Gate {
 public:
  Work AsWork() { return Work{&Run, this}; }

  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  static absl::Status Run(void* argument, Stream& stream) {
    Gate& gate = *static_cast<Gate*>(argument);
    return InTurn(stream, [&gate] { gate.Await(); });
  }

  void Await() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// Work that adds `delta` to the `count` numbers at `data` in device memory.
struct Add {
  int32_t* data;
  size_t count;
  int32_t delta;

  Work AsWork() { return Work{&Run, this}; }
  static absl::Status Run(void* argument, Stream& stream) {
    const Add& add = *static_cast<Add*>(argument);
    return InTurn(stream, [&add] {
      for (size_t i = 0; i < add.count; ++i) add.data[i] += add.delta;
    });
  }
};

}  // namespace

void PrintTo(const ConformingDevice& device, std::ostream* out) { *out << device.name; }

std::string ConformanceName(const ::testing::TestParamInfo<ConformingDevice>& info) {
  return info.param.name;
}

std::unique_ptr<Stream> DeviceConformanceTest::NewStream(const std::string& name) {
  return device_->NewStream(name).value();
}

std::unique_ptr<Event> DeviceConformanceTest::NewEvent() { return device_->NewEvent().value(); }

std::shared_ptr<Buffer> DeviceConformanceTest::NewBuffer(size_t bytes) {
  return device_->Allocate(bytes).value();
}

TEST_P(DeviceConformanceTest, BuffersAreAlignedDistinctAndOfTheirSize) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::set<void*> addresses;
  for (const size_t bytes : {0, 1, 63, 64, 65, 4097, 3 << 20, 1 << 21, 0}) {
    buffers.push_back(NewBuffer(bytes));
    EXPECT_EQ(buffers.back()->size(), bytes);
    EXPECT_EQ(&buffers.back()->device(), device_.get());
    EXPECT_NE(buffers.back()->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back()->data()) % kAlignment, 0u) << bytes;
    EXPECT_TRUE(addresses.insert(buffers.back()->data()).second) << bytes;
  }
}

TEST_P(DeviceConformanceTest, CountsWhatIsAllocated) {
  EXPECT_EQ(device_->bytes_in_use(), 0u);
  auto first = NewBuffer(1000);
  auto second = NewBuffer(3 << 20);
  EXPECT_EQ(device_->bytes_in_use(), 1000u + (3 << 20));
  second.reset();
  EXPECT_EQ(device_->bytes_in_use(), 1000u);
  EXPECT_EQ(device_->peak_bytes(), 1000u + (3 << 20));
  device_->ForgetPeakBytes();
  EXPECT_EQ(device_->peak_bytes(), 1000u);
  auto third = NewBuffer(500);
  first.reset();
  EXPECT_EQ(device_->bytes_in_use(), 500u);
  EXPECT_EQ(device_->peak_bytes(), 1500u);
}

TEST_P(DeviceConformanceTest, RefusesWhatIsBeyondItsLimit) {
  const std::unique_ptr<Device> device = GetParam().make(1000);
  auto kept = device->Allocate(600);
  ASSERT_TRUE(kept.ok()) << kept.status();
  const absl::Status status = device->Allocate(401).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(device->info().name,
                                                       " cannot allocate 401 "
                                                       "bytes")));
  EXPECT_THAT(status.message(), HasSubstr("600 bytes are in use"));
  EXPECT_THAT(status.message(), HasSubstr("its limit is 1000 bytes"));
  EXPECT_TRUE(device->Allocate(400).ok());
  EXPECT_EQ(device->bytes_in_use(), 600u);
  EXPECT_EQ(device->info().memory_limit, 1000u);
}

TEST_P(DeviceConformanceTest, RefusesImpossibleSizes) {
  const size_t max_bytes = std::numeric_limits<size_t>::max();
  auto kept = NewBuffer(100);
  for (const size_t bytes :
       {max_bytes, max_bytes - 99, max_bytes - 4096, max_bytes / 2, max_bytes / 4 - 200}) {
    EXPECT_EQ(device_->Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(device_->bytes_in_use(), 100u);
}

TEST_P(DeviceConformanceTest, AllocatesForManyThreads) {
  constexpr size_t kLimit = 3000;
  const std::unique_ptr<Device> device = GetParam().make(kLimit);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        auto first = device->Allocate(1000);
        auto second = device->Allocate(700);
        EXPECT_LE(device->bytes_in_use(), kLimit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device->bytes_in_use(), 0u);
  EXPECT_GT(device->peak_bytes(), 0u);
  EXPECT_LE(device->peak_bytes(), kLimit);
}

TEST_P(DeviceConformanceTest, CopiesThereOnItAndBack) {
  auto stream = NewStream();
  for (const size_t bytes : {0, 1, 1000, 3 << 20}) {
    std::vector<uint8_t> sent(bytes);
    std::iota(sent.begin(), sent.end(), uint8_t{1});
    std::vector<uint8_t> received(bytes);
    const auto first = NewBuffer(bytes);
    const auto second = NewBuffer(bytes);
    ASSERT_TRUE(device_->CopyFromHost(*stream, sent.data(), first->data(), bytes).ok());
    ASSERT_TRUE(device_->CopyOnDevice(*stream, first->data(), second->data(), bytes).ok());
    ASSERT_TRUE(device_->CopyToHost(*stream, second->data(), received.data(), bytes).ok());
    ASSERT_TRUE(stream->Synchronize(kPatience).ok());
    EXPECT_EQ(received, sent);
  }
}

TEST_P(DeviceConformanceTest, RunsTheWorkOfAStreamInOrder) {
  std::vector<int> list;
  std::vector<Append> appends;
  for (int i = 0; i < 2000; ++i) appends.push_back({&list, i});
  auto stream = NewStream();
  for (Append& append : appends) ASSERT_TRUE(stream->Enqueue(append.AsWork()).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  std::vector<int> expected(2000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(list, expected);
}

TEST_P(DeviceConformanceTest, OrdersCopiesWithWork) {
  if (GetParam().launch_is_host_call) GTEST_SKIP() << "its code cannot touch the device's memory";
  auto stream = NewStream();
  const auto buffer = NewBuffer(16);
  std::vector<int32_t> numbers = {1, 2, 3, 4};
  std::vector<int32_t> between(4);
  std::vector<int32_t> after(4);
  Add add{static_cast<int32_t*>(buffer->data()), 4, 10};
  ASSERT_TRUE(device_->CopyFromHost(*stream, numbers.data(), buffer->data(), 16).ok());
  ASSERT_TRUE(stream->Enqueue(add.AsWork()).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream, buffer->data(), between.data(), 16).ok());
  ASSERT_TRUE(stream->Enqueue(add.AsWork()).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream, buffer->data(), after.data(), 16).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_THAT(between, ::testing::ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(after, ::testing::ElementsAre(21, 22, 23, 24));
}

TEST_P(DeviceConformanceTest, GivesWorkItsStream) {
  auto stream = NewStream();
  Stream* seen = nullptr;
  const Work work{[](void* argument, Stream& own) {
                    *static_cast<Stream**>(argument) = &own;
                    return absl::OkStatus();
                  },
                  &seen};
  ASSERT_TRUE(stream->Enqueue(work).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_EQ(seen, stream.get());
}

// Two streams take turns on one list, tied together by two events that are used again and again.
TEST_P(DeviceConformanceTest, EventsOrderTheWorkOfTwoStreams) {
  constexpr int kRounds = 200;
  std::vector<int> list;
  std::vector<Append> appends;
  for (int i = 0; i < 2 * kRounds; ++i) appends.push_back({&list, i});
  auto first = NewStream("first");
  auto second = NewStream("second");
  auto ping = NewEvent();
  auto pong = NewEvent();
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(first->Wait(*pong).ok());
    ASSERT_TRUE(first->Enqueue(appends[2 * round].AsWork()).ok());
    ASSERT_TRUE(first->Record(*ping).ok());
    ASSERT_TRUE(second->Wait(*ping).ok());
    ASSERT_TRUE(second->Enqueue(appends[2 * round + 1].AsWork()).ok());
    ASSERT_TRUE(second->Record(*pong).ok());
  }
  ASSERT_TRUE(second->Synchronize(kPatience).ok());
  ASSERT_TRUE(first->Synchronize(kPatience).ok());
  std::vector<int> expected(2 * kRounds);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(list, expected);
}

TEST_P(DeviceConformanceTest, AnEventNotYetRecordedIsDone) {
  auto stream = NewStream();
  auto event = NewEvent();
  EXPECT_TRUE(event->Done());
  ASSERT_TRUE(stream->Wait(*event).ok());
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST_P(DeviceConformanceTest, AnEventIsDoneOnceItsStreamIsSynchronized) {
  auto stream = NewStream();
  auto event = NewEvent();
  ASSERT_TRUE(stream->Record(*event).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_TRUE(event->Done());
}

TEST_P(DeviceConformanceTest, KeepsTheFirstErrorAndSkipsTheRest) {
  std::vector<int> list;
  Append before{&list, 1};
  Append after{&list, 2};
  Failure first{"the first failure"};
  Failure second{"the second failure"};
  auto stream = NewStream();
  auto event = NewEvent();
  const auto buffer = NewBuffer(4);
  int32_t number = 0;
  ASSERT_TRUE(stream->Enqueue(before.AsWork()).ok());
  // What these return depends on when the work runs; what follows does not.
  (void)stream->Enqueue(first.AsWork());
  (void)stream->Enqueue(second.AsWork());
  (void)stream->Enqueue(after.AsWork());

  const absl::Status error = absl::AbortedError("the first failure");
  EXPECT_EQ(stream->Synchronize(kPatience), error);
  EXPECT_EQ(stream->Enqueue(after.AsWork()), error);
  EXPECT_EQ(stream->Record(*event), error);
  EXPECT_EQ(stream->Wait(*event), error);
  EXPECT_EQ(device_->CopyFromHost(*stream, &number, buffer->data(), 4), error);
  EXPECT_EQ(stream->Synchronize(kPatience), error);
  EXPECT_THAT(list, ::testing::ElementsAre(1));
}

TEST_P(DeviceConformanceTest, AnErrorStaysInItsStream) {
  std::vector<int> list;
  Append append{&list, 1};
  Failure failure{"a failure"};
  auto failing = NewStream("failing");
  auto other = NewStream("other");
  auto event = NewEvent();
  (void)failing->Enqueue(failure.AsWork());
  (void)failing->Record(*event);
  // The event is not lost in the error: the other stream goes on.
  ASSERT_TRUE(other->Wait(*event).ok());
  ASSERT_TRUE(other->Enqueue(append.AsWork()).ok());
  EXPECT_TRUE(other->Synchronize(kPatience).ok());
  EXPECT_EQ(failing->Synchronize(kPatience).message(), "a failure");
  EXPECT_THAT(list, ::testing::ElementsAre(1));
}

TEST_P(DeviceConformanceTest, EndingAStreamWaitsForItsWork) {
  std::vector<int> list;
  std::vector<Append> appends;
  for (int i = 0; i < 100; ++i) appends.push_back({&list, i});
  auto stream = NewStream();
  for (Append& append : appends) ASSERT_TRUE(stream->Enqueue(append.AsWork()).ok());
  stream.reset();
  EXPECT_EQ(list.size(), 100u);
}

TEST_P(DeviceConformanceTest, SynchronizeTimesOut) {
  if (!GetParam().asynchronous) GTEST_SKIP() << "its streams run their work in the calling thread";
  Gate gate;
  auto stream = NewStream("slow");
  ASSERT_TRUE(stream->Enqueue(gate.AsWork()).ok());
  const absl::Status status = stream->Synchronize(absl::Milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("stream slow of ", device_->info().name)));
  gate.Open();
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST_P(DeviceConformanceTest, AnEventIsDoneWhenTheWorkBeforeItHasRun) {
  if (!GetParam().asynchronous) GTEST_SKIP() << "its streams run their work in the calling thread";
  Gate gate;
  auto stream = NewStream();
  auto event = NewEvent();
  ASSERT_TRUE(stream->Record(*event).ok());
  ASSERT_TRUE(stream->Enqueue(gate.AsWork()).ok());
  ASSERT_TRUE(stream->Record(*event).ok());
  EXPECT_FALSE(event->Done());
  gate.Open();
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_TRUE(event->Done());
}

TEST_P(DeviceConformanceTest, HostMemoryIsTheHosts) {
  auto stream = NewStream();
  const auto host = device_->AllocateHostMemory(4097).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(host->data()) % kAlignment, 0u);
  EXPECT_TRUE(host->device().info().host_accessible);
  EXPECT_EQ(device_->bytes_in_use(), 0u);
  std::memset(host->data(), 7, 4097);
  const auto buffer = NewBuffer(4097);
  std::vector<uint8_t> received(4097);
  ASSERT_TRUE(device_->CopyFromHost(*stream, host->data(), buffer->data(), 4097).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream, buffer->data(), received.data(), 4097).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_EQ(received, std::vector<uint8_t>(4097, 7));
}

TEST_P(DeviceConformanceTest, StreamsThatCannotRecordSaySo) {
  if (GetParam().records) GTEST_SKIP() << "its streams record";
  auto stream = NewStream();
  EXPECT_EQ(stream->BeginRecording().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(stream->EndRecording(nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST_P(DeviceConformanceTest, WhatIsRecordedRunsAsOftenAsAsked) {
  if (!GetParam().records || GetParam().launch_is_host_call) {
    GTEST_SKIP() << "its streams do not record, or its code cannot touch the device's memory";
  }
  auto stream = NewStream();
  const auto buffer = NewBuffer(16);
  const auto host = device_->AllocateHostMemory(32).value();
  auto* const numbers = static_cast<int32_t*>(host->data());
  std::iota(numbers, numbers + 8, 1);
  Add add{static_cast<int32_t*>(buffer->data()), 4, 10};
  ASSERT_TRUE(stream->BeginRecording().ok());
  ASSERT_TRUE(device_->CopyFromHost(*stream, numbers, buffer->data(), 16).ok());
  ASSERT_TRUE(stream->Enqueue(add.AsWork()).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream, buffer->data(), numbers + 4, 16).ok());
  auto recorded = stream->EndRecording(nullptr);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_EQ(numbers[4], 5) << "what was recorded has run";
  for (int run = 0; run < 3; ++run) {
    numbers[0] = 100 * run;
    ASSERT_TRUE((*recorded)->Run(*stream).ok());
    ASSERT_TRUE(stream->Synchronize(kPatience).ok());
    EXPECT_EQ(numbers[4], 100 * run + 10);
    EXPECT_EQ(numbers[7], 14);
  }
}

// Two streams that only events tie together, in a recording that runs many times.
TEST_P(DeviceConformanceTest, EventsOrderWhatIsRecordedOfTwoStreams) {
  if (!GetParam().records) GTEST_SKIP() << "its streams do not record";
  constexpr int kRounds = 8;
  std::vector<int> list;
  std::vector<Append> appends;
  for (int i = 0; i < 2 * kRounds; ++i) appends.push_back({&list, i});
  auto first = NewStream("first");
  auto second = NewStream("second");
  std::vector<std::unique_ptr<Event>> events;
  ASSERT_TRUE(first->BeginRecording().ok());
  for (int i = 0; i < 2 * kRounds; i += 2) {
    ASSERT_TRUE(first->Enqueue(appends[i].AsWork()).ok());
    events.push_back(NewEvent());
    ASSERT_TRUE(first->Record(*events.back()).ok());
    ASSERT_TRUE(second->Wait(*events.back()).ok());
    ASSERT_TRUE(second->Enqueue(appends[i + 1].AsWork()).ok());
    events.push_back(NewEvent());
    ASSERT_TRUE(second->Record(*events.back()).ok());
    ASSERT_TRUE(first->Wait(*events.back()).ok());
  }
  auto recorded = first->EndRecording(nullptr);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  std::vector<int> expected(2 * kRounds);
  std::iota(expected.begin(), expected.end(), 0);
  for (int run = 0; run < 10; ++run) {
    list.clear();
    ASSERT_TRUE((*recorded)->Run(*first).ok());
    ASSERT_TRUE(first->Synchronize(kPatience).ok());
    EXPECT_EQ(list, expected);
  }
  // The streams are themselves again.
  ASSERT_TRUE(second->Enqueue(appends[0].AsWork()).ok());
  ASSERT_TRUE(second->Synchronize(kPatience).ok());
  EXPECT_EQ(list.size(), expected.size() + 1);
}

TEST_P(DeviceConformanceTest, ARecordingIsBroughtUpToDate) {
  if (!GetParam().records) GTEST_SKIP() << "its streams do not record";
  std::vector<int> list;
  Append one{&list, 1};
  Append two{&list, 2};
  auto stream = NewStream();
  const auto record = [&](std::vector<Append*> appends, std::unique_ptr<RecordedWork> former) {
    EXPECT_TRUE(stream->BeginRecording().ok());
    for (Append* append : appends) EXPECT_TRUE(stream->Enqueue(append->AsWork()).ok());
    return stream->EndRecording(std::move(former)).value();
  };
  auto recorded = record({&one}, nullptr);
  ASSERT_TRUE(recorded->Run(*stream).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  recorded = record({&two}, std::move(recorded));
  ASSERT_TRUE(recorded->Run(*stream).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  recorded = record({&two, &one}, std::move(recorded));
  ASSERT_TRUE(recorded->Run(*stream).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_THAT(list, ::testing::ElementsAre(1, 2, 2, 1));
}

TEST_P(DeviceConformanceTest, AnErrorEndsARecording) {
  if (!GetParam().records || GetParam().launch == nullptr) {
    GTEST_SKIP() << "its streams do not record, or run work when the recording runs";
  }
  Failure failure{"a failure"};
  auto stream = NewStream();
  ASSERT_TRUE(stream->BeginRecording().ok());
  (void)stream->Enqueue(failure.AsWork());
  EXPECT_EQ(stream->EndRecording(nullptr).status().message(), "a failure");
  EXPECT_EQ(stream->Synchronize(kPatience).message(), "a failure");
}

TEST_P(DeviceConformanceTest, RecordingRefusesWhatCannotBeRecorded) {
  if (!GetParam().records) GTEST_SKIP() << "its streams do not record";
  std::vector<int> list;
  Append append{&list, 1};
  int32_t number = 0;
  auto stream = NewStream();
  const auto buffer = NewBuffer(4);
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_EQ(stream->BeginRecording().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stream->Synchronize(kPatience).code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status pageable = device_->CopyFromHost(*stream, &number, buffer->data(), 4);
  EXPECT_EQ(pageable.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(pageable.message(), HasSubstr("AllocateHostMemory"));
  // None of them has spoiled it.
  ASSERT_TRUE(stream->Enqueue(append.AsWork()).ok());
  auto recorded = stream->EndRecording(nullptr);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  ASSERT_TRUE((*recorded)->Run(*stream).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_THAT(list, ::testing::ElementsAre(1));
}

// A stream that waits keeps others from nothing.
TEST_P(DeviceConformanceTest, OtherStreamsGoOnWhileOneWaits) {
  if (GetParam().launch_is_host_call) GTEST_SKIP() << "its streams share a thread for such code";
  if (!GetParam().asynchronous) GTEST_SKIP() << "its streams run their work in the calling thread";
  Gate gate;
  std::vector<int> list;
  Append append{&list, 1};
  auto slow = NewStream("slow");
  auto other = NewStream("other");
  ASSERT_TRUE(slow->Enqueue(gate.AsWork()).ok());
  ASSERT_TRUE(other->Enqueue(append.AsWork()).ok());
  EXPECT_TRUE(other->Synchronize(kPatience).ok());
  EXPECT_THAT(list, ::testing::ElementsAre(1));
  gate.Open();
  EXPECT_TRUE(slow->Synchronize(kPatience).ok());
}

}  // namespace weft::testing
