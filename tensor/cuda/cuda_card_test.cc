// The CUDA device on a real card, where this build and this machine have one: what only a card can
// show of the calls that the fake runtime stands for.
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/mutex.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_meaning.h"
#include "tensor/testing/device_conformance.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// The runtime, where it has a card that can be used; else null.
CudaRuntime* RuntimeWithCard() {
  const auto runtime = SystemCudaRuntime();
  return runtime.ok() && CheckCudaDevice(0).ok() ? *runtime : nullptr;
}

// Code that a stream calls on the host. Recordings call it again and again, so it stays.
absl::Status CallOnHost(CudaRuntime& runtime, Stream& stream, std::function<void()> code) {
  static Mutex* const mutex = new Mutex;
  static auto* const codes = new std::vector<std::unique_ptr<std::function<void()>>>;
  MutexLock lock(*mutex);
  codes->push_back(std::make_unique<std::function<void()>>(std::move(code)));
  const CudaCode called = runtime.CallHost(
      stream.native_handle(),
      [](void* argument) { (*static_cast<std::function<void()>*>(argument))(); },
      codes->back().get());
  return called == CudaCode::kSuccess ? absl::OkStatus()
                                      : absl::InternalError("the call of the host is refused");
}

std::vector<ConformingDevice> RealDevices() {
  CudaRuntime* const runtime = RuntimeWithCard();
  if (runtime == nullptr) return {};
  ConformingDevice device;
  device.name = "Card0";
  device.make = [runtime](size_t memory_limit) -> std::unique_ptr<Device> {
    CudaDeviceOptions options;
    options.memory_limit = memory_limit;
    return CudaDevice::Create(*runtime, options).value();
  };
  device.asynchronous = true;
  device.launch = [runtime](Stream& stream, std::function<void()> code) {
    return CallOnHost(*runtime, stream, std::move(code));
  };
  device.launch_is_host_call = true;
  device.records = true;
  return {device};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformanceTest);
INSTANTIATE_TEST_SUITE_P(Card, DeviceConformanceTest, ::testing::ValuesIn(RealDevices()),
                         ConformanceName);

// Needs CUDA in the build, and no card.
TEST(CudaMeaningTest, CallsErrorsAsCudaDoes) {
  const auto runtime = SystemCudaRuntime();
  if (!runtime.ok()) GTEST_SKIP() << runtime.status();
  int named = 0;
  for (int number = 1; number < 1000; ++number) {
    const CudaMeaning meaning = MeaningOf(static_cast<CudaCode>(number));
    if (meaning.name.empty()) continue;
    EXPECT_EQ((*runtime)->ErrorName(static_cast<CudaCode>(number)), meaning.name);
    ++named;
  }
  EXPECT_GE(named, 30);
}

class CudaCardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = RuntimeWithCard();
    if (runtime_ == nullptr) GTEST_SKIP() << CheckCudaDevice(0);
    device_ = CudaDevice::Create(*runtime_, {}).value();
    stream_ = device_->NewStream("test").value();
  }

  CudaRuntime* runtime_ = nullptr;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaCardTest, MemoryIsAlignedAsPromised) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (const size_t bytes : {1, 255, 257, 100'000}) {
    buffers.push_back(device_->Allocate(bytes).value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back()->data()) % 256, 0u) << bytes;
  }
  EXPECT_GE(device_->properties().major, kOldestCudaMajor);
  EXPECT_GT(device_->properties().memory_clock_khz, 0);
}

TEST_F(CudaCardTest, MoreThanTheCardHasIsRefusedAndNothingIsBroken) {
  CudaDeviceOptions options;
  options.index = 1;
  options.memory_limit = size_t{1} << 50;
  const auto device = CudaDevice::Create(*runtime_, options).value();
  const absl::Status status = device->Allocate(size_t{1} << 45).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes of the card"));
  EXPECT_EQ(runtime_->LastError(), CudaCode::kSuccess) << "a library would take it for its own";
  EXPECT_TRUE(device->Allocate(1 << 20).ok());
}

TEST_F(CudaCardTest, AskingAStreamLeavesNoError) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  ASSERT_TRUE(CallOnHost(*runtime_, *stream_, [&] {
                MutexLock lock(mutex);
                while (!open) changed.Wait(mutex);
              }).ok());
  EXPECT_EQ(stream_->Synchronize(absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(runtime_->LastError(), CudaCode::kSuccess);
  {
    MutexLock lock(mutex);
    open = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(stream_->Synchronize(kPatience).ok());
}

TEST_F(CudaCardTest, RecordedCopiesReadWhatIsThereWhenTheyRun) {
  const auto host = device_->AllocateHostMemory(4000).value();
  const auto result = device_->AllocateHostMemory(4000).value();
  const auto buffer = device_->Allocate(4000).value();
  auto* const numbers = static_cast<int32_t*>(host->data());
  auto* const results = static_cast<int32_t*>(result->data());
  ASSERT_TRUE(stream_->BeginRecording().ok());
  ASSERT_TRUE(device_->CopyFromHost(*stream_, numbers, buffer->data(), 4000).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream_, buffer->data(), results, 4000).ok());
  const auto recorded = stream_->EndRecording(nullptr);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  for (int run = 0; run < 3; ++run) {
    std::iota(numbers, numbers + 1000, run);
    ASSERT_TRUE((*recorded)->Run(*stream_).ok());
    ASSERT_TRUE(stream_->Synchronize(kPatience).ok());
    EXPECT_EQ(results[0], run);
    EXPECT_EQ(results[999], run + 999);
  }
}

// Another thread may go on with streams of its own: a recording belongs to one thread.
TEST_F(CudaCardTest, OtherThreadsWorkWhileOneRecords) {
  ASSERT_TRUE(stream_->BeginRecording().ok());
  absl::Status theirs;
  std::thread other([&] {
    std::vector<int32_t> sent(1000, 7);
    std::vector<int32_t> received(1000);
    const auto buffer = device_->Allocate(4000).value();
    auto stream = device_->NewStream("other").value();
    theirs.Update(device_->CopyFromHost(*stream, sent.data(), buffer->data(), 4000));
    theirs.Update(device_->CopyToHost(*stream, buffer->data(), received.data(), 4000));
    theirs.Update(stream->Synchronize(kPatience));
    EXPECT_EQ(received, sent);
  });
  other.join();
  EXPECT_TRUE(theirs.ok()) << theirs;
  EXPECT_TRUE(stream_->EndRecording(nullptr).ok());
}

// Kernels report through memory that the host reads: a copy stands for the kernel's writes.
TEST_F(CudaCardTest, AFaultIsSeenByTheHost) {
  DeviceFault fault;
  fault.is_set = 1;
  fault.value = 9;
  fault.high = 4;
  fault.source = "Gather 'embed': index";
  const auto buffer = device_->Allocate(sizeof(fault)).value();
  ASSERT_TRUE(device_->CopyFromHost(*stream_, &fault, buffer->data(), sizeof(fault)).ok());
  ASSERT_TRUE(device_->CopyToHost(*stream_, buffer->data(), stream_->fault(), sizeof(fault)).ok());
  const absl::Status status = stream_->Synchronize(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Gather 'embed': index is 9"));
}

// Two logical devices of one card, as two workers have them.
TEST_F(CudaCardTest, CopiesBetweenTwoDevicesOfOneCard) {
  CudaDeviceOptions options;
  options.index = 1;
  options.memory_limit = 1 << 20;
  const auto second = CudaDevice::Create(*runtime_, options).value();
  std::vector<int32_t> sent(1000);
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<int32_t> received(1000);
  const auto from = device_->Allocate(4000).value();
  const auto to = second->Allocate(4000).value();
  ASSERT_TRUE(device_->CopyFromHost(*stream_, sent.data(), from->data(), 4000).ok());
  ASSERT_TRUE(device_->CopyToPeer(*stream_, from->data(), *second, to->data(), 4000).ok());
  ASSERT_TRUE(stream_->Synchronize(kPatience).ok());
  auto back = second->NewStream("back").value();
  ASSERT_TRUE(second->CopyToHost(*back, to->data(), received.data(), 4000).ok());
  ASSERT_TRUE(back->Synchronize(kPatience).ok());
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace weft::testing
