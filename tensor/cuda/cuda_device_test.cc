#include "tensor/cuda/cuda_device.h"

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
#include "tensor/cpu_device.h"
#include "tensor/testing/fake_cuda_runtime.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

FakeCudaOptions TwoCards(bool peers) {
  FakeCudaOptions options;
  options.cards = std::vector<FakeCudaCard>(2);
  if (peers) options.cards[0].peers = {1};
  return options;
}

std::unique_ptr<CudaDevice> Make(FakeCudaRuntime& runtime, const CudaDeviceOptions& options = {}) {
  auto device = CudaDevice::Create(runtime, options);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(CudaDeviceTest, SaysWhatItIs) {
  FakeCudaOptions options = TwoCards(false);
  options.cards[1].used_by_others = 1000;
  FakeCudaRuntime runtime(options);
  const auto device = Make(runtime, {.index = 1, .card = 1});
  EXPECT_EQ(device->info().kind, DeviceKind::kCuda);
  EXPECT_EQ(device->info().index, 1);
  EXPECT_EQ(device->info().name, "cuda:1");
  EXPECT_FALSE(device->info().host_accessible);
  EXPECT_FALSE(device->info().runs_host_work);
  EXPECT_EQ(device->info().memory_limit, (size_t{1} << 30) - 1000) << "what is free";
  EXPECT_EQ(device->properties().name, "Fake GPU");
}

TEST(CudaDeviceTest, TooMuchIsRefusedWithWhatIsFree) {
  FakeCudaOptions options;
  options.cards[0].properties.total_bytes = 1 << 20;
  FakeCudaRuntime runtime(options);
  const auto device = Make(runtime);
  // Somebody else takes what was free.
  const auto other = Make(runtime, {.index = 1});
  const auto theirs = other->Allocate(900 << 10).value();
  const auto kept = device->Allocate(1024).value();
  const absl::Status status = device->Allocate(200 << 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("cuda:0 cannot allocate 204800 bytes"), HasSubstr("1024 bytes are in use"),
            HasSubstr("125952 of the 1048576 bytes of the card (Fake GPU) are free"),
            HasSubstr("smaller batch")));
  EXPECT_EQ(device->bytes_in_use(), 1024u);
}

TEST(CudaDeviceTest, SeveralDevicesOfOneCardHaveTheirOwnLimits) {
  FakeCudaRuntime runtime;
  const auto first = Make(runtime, {.index = 0, .card = 0, .memory_limit = 1000});
  const auto second = Make(runtime, {.index = 1, .card = 0, .memory_limit = 2000});
  const auto kept = first->Allocate(1000).value();
  EXPECT_FALSE(first->Allocate(1).ok());
  EXPECT_TRUE(second->Allocate(2000).ok());
  auto stream = first->NewStream("first").value();
  int32_t number = 0;
  const absl::Status mixed = second->CopyFromHost(*stream, &number, kept->data(), 4);
  EXPECT_EQ(mixed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mixed.message()), HasSubstr("a copy of cuda:1 needs a stream of"));
}

TEST(CudaDeviceTest, EverythingIsGivenBack) {
  FakeCudaRuntime runtime;
  {
    const auto device = Make(runtime);
    auto stream = device->NewStream("test").value();
    auto event = device->NewEvent().value();
    const auto buffer = device->Allocate(1 << 20).value();
    const auto host = device->AllocateHostMemory(100).value();
    std::vector<char> bytes(1 << 20);
    ASSERT_TRUE(device->CopyFromHost(*stream, bytes.data(), buffer->data(), bytes.size()).ok());
    ASSERT_TRUE(stream->Synchronize(kPatience).ok());
    ASSERT_TRUE(stream->BeginRecording().ok());
    const auto recorded = stream->EndRecording(nullptr).value();
    ASSERT_TRUE(stream->BeginRecording().ok());  // and never ended
  }
  EXPECT_EQ(runtime.Leaks(), 0);
  EXPECT_TRUE(runtime.Verify().ok()) << runtime.Verify();
}

// Kernels of a collective do not queue up behind the blocks of a product.
TEST(CudaDeviceTest, StreamsOfMessagesComeBeforeThoseOfKernels) {
  FakeCudaRuntime runtime;
  const auto device = CudaDevice::Create(runtime, {}).value();
  int lowest = 0;
  int highest = 0;
  ASSERT_EQ(runtime.PriorityRange(&lowest, &highest), CudaCode::kSuccess);
  ASSERT_LT(highest, 0);
  const std::pair<const char*, int> streams[] = {
      {"compute", 0},       {"communication", 0}, {"collectives", highest}, {"lane 0", highest},
      {"lane 12", highest}, {"nccl", highest},    {"variables", 0}};
  for (const auto& [name, priority] : streams) {
    ASSERT_TRUE(device->NewStream(name).ok());
    EXPECT_EQ(runtime.Priorities().back(), priority) << name;
  }
  runtime.Fail("PriorityRange", CudaCode::kInitializationError);
  EXPECT_TRUE(device->NewStream("compute").ok());
  EXPECT_FALSE(device->NewStream("collectives").ok());
}

// An error half way through leaves nothing behind.
TEST(CudaDeviceTest, WhatFailsHalfWayIsGivenBack) {
  for (const char* const call : {"CreateStream", "CreatePool", "AllocateHost", "CreateEvent"}) {
    FakeCudaRuntime runtime;
    runtime.Fail(call, CudaCode::kMemoryAllocation);
    auto device = CudaDevice::Create(runtime, {});
    if (device.ok()) {
      auto stream = (*device)->NewStream("test");
      auto event = (*device)->NewEvent();
      auto host = (*device)->AllocateHostMemory(8);
      const bool all = stream.ok() && event.ok() && host.ok();
      EXPECT_FALSE(all) << call;
    } else {
      EXPECT_EQ(device.status().code(), absl::StatusCode::kResourceExhausted) << call;
    }
    device = absl::CancelledError();
    EXPECT_EQ(runtime.Leaks(), 0) << call;
  }
}

TEST(CudaDeviceTest, CopiesToAPeer) {
  for (const bool peers : {false, true}) {
    FakeCudaRuntime runtime(TwoCards(peers));
    const auto first = Make(runtime, {.index = 0, .card = 0});
    const auto second = Make(runtime, {.index = 1, .card = 1});
    auto outward = first->NewStream("outward").value();
    auto back = second->NewStream("back").value();
    auto arrived = first->NewEvent().value();
    std::vector<int32_t> sent(1000);
    std::iota(sent.begin(), sent.end(), 1);
    std::vector<int32_t> received(1000);
    const auto from = first->Allocate(4000).value();
    const auto to = second->Allocate(4000).value();
    ASSERT_TRUE(first->CopyFromHost(*outward, sent.data(), from->data(), 4000).ok());
    ASSERT_TRUE(first->CopyToPeer(*outward, from->data(), *second, to->data(), 4000).ok());
    ASSERT_TRUE(outward->Record(*arrived).ok());
    ASSERT_TRUE(back->Wait(*arrived).ok());
    ASSERT_TRUE(second->CopyToHost(*back, to->data(), received.data(), 4000).ok());
    ASSERT_TRUE(back->Synchronize(kPatience).ok());
    EXPECT_EQ(received, sent);
    ASSERT_TRUE(first->CopyToPeer(*outward, from->data(), *second, to->data(), 4000).ok());
    EXPECT_EQ(runtime.Calls("EnablePeerAccess"), peers ? 1 : 0) << "once, where they can";
    ASSERT_TRUE(outward->Synchronize(kPatience).ok());
    EXPECT_TRUE(runtime.Verify().ok());
  }
}

TEST(CudaDeviceTest, TheCpuIsNoPeer) {
  FakeCudaRuntime runtime;
  const auto device = Make(runtime);
  auto stream = device->NewStream("test").value();
  const auto buffer = device->Allocate(4).value();
  int32_t number = 0;
  const absl::Status status = device->CopyToPeer(*stream, buffer->data(), CpuDevice(), &number, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cuda:0 cannot copy to cpu:0; copy through the host"));
}

TEST(CudaDeviceTest, ACardThatDoesNotAnswerEndsAnAllocation) {
  FakeCudaRuntime runtime;
  const auto device = Make(runtime, {.patience = absl::Milliseconds(5)});
  runtime.Fail("QueryStream", CudaCode::kNotReady);
  const absl::Status status = device->Allocate(100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0 has not given 100 bytes"));
  EXPECT_EQ(device->bytes_in_use(), 0u);
}

// The current card of a new thread is card 0, whichever the device is on. A context costs some 500
// MiB of it, for each of the processes that use the others.
TEST(CudaDeviceTest, NoThreadOpensAContextOnAnotherCard) {
  FakeCudaRuntime runtime(TwoCards(false));
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event;
  std::unique_ptr<RecordedWork> recording;
  std::shared_ptr<Buffer> buffer, host;
  std::vector<char> bytes(64);
  const std::vector<std::pair<const char*, std::function<void()>>> uses = {
      {"device", [&] { device = Make(runtime, {.index = 1, .card = 1}); }},
      {"stream", [&] { stream = device->NewStream("test").value(); }},
      {"event", [&] { event = device->NewEvent().value(); }},
      {"memory", [&] { buffer = device->Allocate(64).value(); }},
      {"memory of the host", [&] { host = device->AllocateHostMemory(64).value(); }},
      {"a copy",
       [&] { EXPECT_TRUE(device->CopyFromHost(*stream, bytes.data(), buffer->data(), 64).ok()); }},
      {"record", [&] { EXPECT_TRUE(stream->Record(*event).ok()); }},
      {"ask", [&] { (void)event->Done(); }},
      {"wait", [&] { EXPECT_TRUE(stream->Wait(*event).ok()); }},
      {"synchronize", [&] { EXPECT_TRUE(stream->Synchronize(kPatience).ok()); }},
      {"begin a recording", [&] { EXPECT_TRUE(stream->BeginRecording().ok()); }},
      {"end it", [&] { recording = stream->EndRecording(nullptr).value(); }},
      {"run it", [&] { EXPECT_TRUE(recording->Run(*stream).ok()); }},
      {"end of the recording", [&] { recording.reset(); }},
      {"end of the event", [&] { event.reset(); }},
      {"end of the memory of the host", [&] { host.reset(); }},
      {"end of the memory", [&] { buffer.reset(); }},
      {"end of the stream", [&] { stream.reset(); }},
      {"end of the device", [&] { device.reset(); }},
  };
  for (const auto& [what, use] : uses) {
    std::thread(use).join();
    EXPECT_THAT(runtime.Contexts(), ElementsAre(1)) << what;
  }
}

TEST(CudaDeviceDeathTest, ItOutlivesItsBuffers) {
  const auto end_first = [] {
    FakeCudaRuntime runtime;
    auto device = Make(runtime);
    const auto buffer = device->Allocate(100).value();
    device.reset();
  };
  EXPECT_DEATH(end_first(), "device cuda:0 ends before its buffers \\(1 of them, 100 bytes\\)");
}

}  // namespace
}  // namespace weft::testing
