#include "tensor/cuda/cuda_stream.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/testing/fake_clock.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/testing/fake_cuda_runtime.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Work that launches code.
struct Kernel {
  FakeCudaRuntime* runtime;
  std::function<void()> code;

  Work AsWork() { return Work{&Run, this}; }
  static absl::Status Run(void* argument, Stream& stream) {
    const Kernel& kernel = *static_cast<const Kernel*>(argument);
    return kernel.runtime->Launch(stream.native_handle(), kernel.code) == CudaCode::kSuccess
               ? absl::OkStatus()
               : absl::InternalError("the launch is refused");
  }
};

class CudaStreamTest : public ::testing::Test {
 protected:
  CudaStreamTest() {
    CudaDeviceOptions options;
    options.staging.slots = 2;
    options.staging.slot_bytes = 1000;
    options.patience = absl::Seconds(10);
    device_ = CudaDevice::Create(runtime_, options).value();
    stream_ = device_->NewStream("compute").value();
  }

  FakeCudaRuntime runtime_{{.cards = std::vector<FakeCudaCard>(2)}};
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaStreamTest, EnqueueLaunchesOnItsOwnCardWhateverTheThreadDidBefore) {
  ASSERT_EQ(runtime_.SetDevice(1), CudaCode::kSuccess);
  bool ran = false;
  Kernel kernel{&runtime_, [&] { ran = true; }};
  ASSERT_TRUE(stream_->Enqueue(kernel.AsWork()).ok());
  ASSERT_TRUE(stream_->Synchronize(kPatience).ok());
  EXPECT_TRUE(ran);
}

// Work that prepares nothing on the device is over when Enqueue returns, though the device is busy.
TEST_F(CudaStreamTest, WorkIsCalledByEnqueue) {
  runtime_.scheduler().Pause();
  std::thread::id caller;
  const Work work{[](void* argument, Stream&) {
                    *static_cast<std::thread::id*>(argument) = std::this_thread::get_id();
                    return absl::OkStatus();
                  },
                  &caller};
  ASSERT_TRUE(stream_->Enqueue(work).ok());
  EXPECT_EQ(caller, std::this_thread::get_id());
  runtime_.scheduler().Resume();
}

TEST_F(CudaStreamTest, AFaultOfAKernelBecomesTheStreamsError) {
  DeviceFault* const fault = stream_->fault();
  Kernel kernel{&runtime_, [fault] {
                  fault->is_set = 1;
                  fault->value = 9;
                  fault->position = 3;
                  fault->high = 4;
                  fault->source = "Gather 'embed': index";
                }};
  ASSERT_TRUE(stream_->Enqueue(kernel.AsWork()).ok());
  const absl::Status status = stream_->Synchronize(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Gather 'embed': index is 9 at element 3, so that it is not in [0, 4)"));
  EXPECT_EQ(stream_->Enqueue(kernel.AsWork()), status);
  EXPECT_EQ(stream_->Synchronize(kPatience), status);
  auto other = device_->NewStream("other").value();
  EXPECT_TRUE(other->Synchronize(kPatience).ok());
}

TEST_F(CudaStreamTest, AnErrorOfTheCardIsKept) {
  runtime_.Fail("QueryStream", CudaCode::kIllegalAddress, 0, 1);
  const absl::Status status = stream_->Synchronize(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("stream compute of cuda:0 cannot finish its work"),
                    HasSubstr("(700)"), HasSubstr("compute-sanitizer")));
  EXPECT_EQ(stream_->Synchronize(kPatience), status);
  EXPECT_EQ(stream_->BeginRecording(), status);
}

// Others wait for what ran before the error, and no longer.
TEST_F(CudaStreamTest, AnEventBehindAnErrorIsStillRecorded) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  Kernel gate{&runtime_, [&] {
                MutexLock lock(mutex);
                while (!open) changed.Wait(mutex);
              }};
  const Work failure{[](void*, Stream&) { return absl::AbortedError("a failure"); }, nullptr};
  auto event = device_->NewEvent().value();
  ASSERT_TRUE(stream_->Enqueue(gate.AsWork()).ok());
  EXPECT_EQ(stream_->Enqueue(failure), absl::AbortedError("a failure"));
  EXPECT_EQ(stream_->Record(*event), absl::AbortedError("a failure"));
  EXPECT_FALSE(event->Done());
  {
    MutexLock lock(mutex);
    open = true;
    changed.NotifyAll();
  }
  EXPECT_EQ(stream_->Synchronize(kPatience), absl::AbortedError("a failure"));
  EXPECT_TRUE(event->Done());
}

// The deadline is the clock's: a card that hangs ends no test by its own time.
TEST_F(CudaStreamTest, SynchronizeGivesUpAtItsDeadline) {
  FakeClock clock;
  CudaDeviceOptions options;
  options.clock = &clock;
  options.index = 1;
  const auto device = CudaDevice::Create(runtime_, options).value();
  auto stream = device->NewStream("slow").value();
  Mutex mutex;
  CondVar changed;
  bool open = false;
  Kernel gate{&runtime_, [&] {
                MutexLock lock(mutex);
                while (!open) changed.Wait(mutex);
              }};
  ASSERT_TRUE(stream->Enqueue(gate.AsWork()).ok());
  absl::Status status;
  std::thread waiter([&] { status = stream->Synchronize(absl::Hours(1)); });
  clock.AwaitWaiters(1);
  clock.Advance(absl::Hours(2));
  waiter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "stream slow of cuda:1 has not finished within 1h");
  {
    MutexLock lock(mutex);
    open = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(runtime_.SynchronizeStream(stream->native_handle()) == CudaCode::kSuccess);
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST_F(CudaStreamTest, StagingTakesTurnsOnItsSlots) {
  const size_t bytes = 12'345;  // thirteen parts, two slots
  std::vector<uint8_t> sent(bytes);
  std::iota(sent.begin(), sent.end(), uint8_t{3});
  std::vector<uint8_t> received(bytes);
  const auto buffer = device_->Allocate(bytes).value();
  const int before = runtime_.Calls("Copy");
  ASSERT_TRUE(device_->CopyFromHost(*stream_, sent.data(), buffer->data(), bytes).ok());
  std::fill(sent.begin(), sent.end(), uint8_t{0});  // It was read already, as its header says.
  ASSERT_TRUE(device_->CopyToHost(*stream_, buffer->data(), received.data(), bytes).ok());
  ASSERT_TRUE(stream_->Synchronize(kPatience).ok());
  EXPECT_EQ(runtime_.Calls("Copy") - before, 26);
  std::iota(sent.begin(), sent.end(), uint8_t{3});
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(runtime_.Verify().ok());
}

// Lets a paused card go on when the host waits for it, and not before.
class LazyCardClock final : public Clock {
 public:
  explicit LazyCardClock(FakeScheduler& card) : card_(card) {}
  absl::Time Now() override { return RealClock().Now(); }
  int64_t MonotonicNanos() override { return RealClock().MonotonicNanos(); }
  bool WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    card_.Resume();
    return RealClock().WaitUntil(condition, mutex, deadline);
  }

 private:
  FakeScheduler& card_;
};

constexpr size_t kPartBytes = 100;
constexpr size_t kParts = 6;

std::vector<uint8_t> Part(size_t part) {
  return std::vector<uint8_t>(kPartBytes, static_cast<uint8_t>(part + 1));
}

// Copies parts through two slots of staging memory, to the card (`is_in`) and back or the other way
// round. The card stands still from part `lazy` on until the host waits for it; `without`: the
// event behind that part's copy is not recorded. True if all parts have come.
bool ArePartsRight(bool is_in, size_t lazy, bool without) {
  FakeCudaRuntime runtime;
  LazyCardClock clock(runtime.scheduler());
  CudaDeviceOptions options;
  options.staging.slots = 2;
  options.staging.slot_bytes = kPartBytes;
  options.clock = &clock;
  const auto device = CudaDevice::Create(runtime, options).value();
  const auto buffer = device->Allocate(kParts * kPartBytes).value();
  const auto stream = device->NewStream("staged").value();
  const auto pinned = device->AllocateHostMemory(kParts * kPartBytes).value();
  auto* const direct = static_cast<uint8_t*>(pinned->data());
  for (size_t part = 0; part < kParts && !is_in; ++part) {
    std::memcpy(direct + part * kPartBytes, Part(part).data(), kPartBytes);
  }
  EXPECT_TRUE(device->CopyFromHost(*stream, direct, buffer->data(), pinned->size()).ok());
  std::vector<std::vector<uint8_t>> parts(kParts, std::vector<uint8_t>(kPartBytes));
  for (size_t part = 0; part < kParts; ++part) {
    if (part == lazy) {
      EXPECT_TRUE(stream->Synchronize(kPatience).ok());
      runtime.scheduler().Pause();
      if (without) runtime.Fail("RecordEvent", CudaCode::kSuccess, /*skip=*/0, /*times=*/1);
    }
    auto* const stored = static_cast<uint8_t*>(buffer->data()) + part * kPartBytes;
    if (is_in) parts[part] = Part(part);
    const absl::Status copied =
        is_in ? device->CopyFromHost(*stream, parts[part].data(), stored, kPartBytes)
              : device->CopyToHost(*stream, stored, parts[part].data(), kPartBytes);
    EXPECT_TRUE(copied.ok()) << copied;
  }
  runtime.scheduler().Resume();
  if (is_in) {
    EXPECT_TRUE(device->CopyToHost(*stream, buffer->data(), direct, pinned->size()).ok());
  }
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_TRUE(runtime.Verify().ok()) << runtime.Verify();
  bool are_right = true;
  for (size_t part = 0; part < kParts; ++part) {
    const uint8_t* const data = is_in ? direct + part * kPartBytes : parts[part].data();
    are_right = are_right && std::memcmp(data, Part(part).data(), kPartBytes) == 0;
  }
  return are_right;
}

// All but the last two: those slots are not used again before the stream has been waited for.
TEST(CudaStagingTest, EachEventBehindACopyIsNeeded) {
  for (const bool is_in : {true, false}) {
    for (size_t part = 0; part < kParts; ++part) {
      SCOPED_TRACE(part);
      EXPECT_TRUE(ArePartsRight(is_in, part, /*without=*/false)) << is_in;
      EXPECT_EQ(ArePartsRight(is_in, part, /*without=*/true), part + 2 >= kParts) << is_in;
    }
  }
}

TEST_F(CudaStreamTest, PinnedMemoryIsNotStaged) {
  const auto host = device_->AllocateHostMemory(5000).value();
  const auto buffer = device_->Allocate(5000).value();
  const int before = runtime_.Calls("Copy");
  ASSERT_TRUE(device_->CopyFromHost(*stream_, host->data(), buffer->data(), 5000).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream_, buffer->data(), host->data(), 5000).ok());
  ASSERT_TRUE(stream_->Synchronize(kPatience).ok());
  EXPECT_EQ(runtime_.Calls("Copy") - before, 2);
  EXPECT_EQ(runtime_.Calls("CallHost"), 0);
}

TEST_F(CudaStreamTest, StagingGivesUpWhereTheDeviceHangs) {
  CudaDeviceOptions options;
  options.index = 1;
  options.patience = absl::Milliseconds(5);
  options.staging.slots = 2;
  options.staging.slot_bytes = 1000;
  const auto device = CudaDevice::Create(runtime_, options).value();
  auto stream = device->NewStream("copies").value();
  const auto buffer = device->Allocate(5000).value();
  std::vector<char> bytes(5000);
  runtime_.scheduler().Pause();
  const absl::Status status =
      device->CopyFromHost(*stream, bytes.data(), buffer->data(), bytes.size());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stream copies of cuda:1"));
  runtime_.scheduler().Resume();
  EXPECT_EQ(runtime_.SynchronizeStream(stream->native_handle()), CudaCode::kSuccess);
}

TEST_F(CudaStreamTest, MemoryOfADeviceIsNotTheHosts) {
  const auto buffer = device_->Allocate(8).value();
  const absl::Status status = device_->CopyFromHost(*stream_, buffer->data(), buffer->data(), 8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_->Synchronize(kPatience).ok()) << "nothing happened";
}

TEST_F(CudaStreamTest, EventsOfOtherKindsOfDevicesAreNotWaitedFor) {
  FakeDevice fake;
  auto theirs = fake.NewStream("theirs").value();
  auto event = fake.NewEvent().value();
  EXPECT_TRUE(stream_->Wait(*event).ok()) << "it is done";
  EXPECT_EQ(stream_->Record(*event).code(), absl::StatusCode::kInvalidArgument);
  fake.scheduler().Pause();
  ASSERT_TRUE(theirs->Record(*event).ok());
  EXPECT_EQ(stream_->Wait(*event).code(), absl::StatusCode::kFailedPrecondition);
  fake.scheduler().Resume();
}

// Without the event, the kernel of the second stream may run before what it reads is written: some
// order of some seed shows it.
TEST_F(CudaStreamTest, AMissingEventShowsInARecording) {
  const auto wrong_orders = [&](bool with_event) {
    int value = 0;
    int seen = 0;
    int wrong = 0;
    Kernel write{&runtime_, [&] { value = 1; }};
    Kernel read{&runtime_, [&] { seen = value; }};
    auto second = device_->NewStream("second").value();
    auto fork = device_->NewEvent().value();
    auto written = device_->NewEvent().value();
    auto join = device_->NewEvent().value();
    EXPECT_TRUE(stream_->BeginRecording().ok());
    EXPECT_TRUE(stream_->Record(*fork).ok());
    EXPECT_TRUE(second->Wait(*fork).ok());
    EXPECT_TRUE(stream_->Enqueue(write.AsWork()).ok());
    if (with_event) {
      EXPECT_TRUE(stream_->Record(*written).ok());
      EXPECT_TRUE(second->Wait(*written).ok());
    }
    EXPECT_TRUE(second->Enqueue(read.AsWork()).ok());
    EXPECT_TRUE(second->Record(*join).ok());
    EXPECT_TRUE(stream_->Wait(*join).ok());
    const auto recorded = stream_->EndRecording(nullptr).value();
    for (int run = 0; run < 40; ++run) {
      value = 0;
      EXPECT_TRUE(recorded->Run(*stream_).ok());
      EXPECT_TRUE(stream_->Synchronize(kPatience).ok());
      wrong += seen == 1 ? 0 : 1;
    }
    return wrong;
  };
  EXPECT_EQ(wrong_orders(true), 0);
  EXPECT_GT(wrong_orders(false), 0);
}

TEST_F(CudaStreamTest, ARecordingOfAStreamThatDoesNotComeBackIsRefused) {
  Kernel kernel{&runtime_, [] {}};
  auto second = device_->NewStream("second").value();
  auto fork = device_->NewEvent().value();
  ASSERT_TRUE(stream_->BeginRecording().ok());
  ASSERT_TRUE(stream_->Record(*fork).ok());
  ASSERT_TRUE(second->Wait(*fork).ok());
  ASSERT_TRUE(second->Enqueue(kernel.AsWork()).ok());
  const absl::Status status = stream_->EndRecording(nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be recorded"));
}

TEST_F(CudaStreamTest, ARecordingRunsOnStreamsOfItsDeviceAlone) {
  ASSERT_TRUE(stream_->BeginRecording().ok());
  const auto recorded = stream_->EndRecording(nullptr).value();
  const auto other = CudaDevice::Create(runtime_, {.index = 1, .card = 1}).value();
  auto stream = other->NewStream("other").value();
  EXPECT_EQ(recorded->Run(*stream).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(recorded->Run(*stream_).ok());
  EXPECT_TRUE(stream_->Synchronize(kPatience).ok());
}

// Same form, other values: the executable graph stays.
TEST_F(CudaStreamTest, OnlyAnotherFormMakesANewExecutable) {
  Kernel kernel{&runtime_, [] {}};
  const auto record = [&](int kernels, std::unique_ptr<RecordedWork> former) {
    EXPECT_TRUE(stream_->BeginRecording().ok());
    for (int i = 0; i < kernels; ++i) EXPECT_TRUE(stream_->Enqueue(kernel.AsWork()).ok());
    return stream_->EndRecording(std::move(former)).value();
  };
  auto recorded = record(2, nullptr);
  recorded = record(2, std::move(recorded));
  EXPECT_EQ(runtime_.Calls("Instantiate"), 1);
  recorded = record(3, std::move(recorded));
  EXPECT_EQ(runtime_.Calls("Instantiate"), 2);
}

}  // namespace
}  // namespace weft::testing
