#include "tensor/testing/fake_device.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"
#include "tensor/cpu_device.h"
#include "tensor/tensor.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Runs `function` as one work item on a stream of its own and waits for it.
void RunOn(FakeDevice& device, std::function<void()> function) {
  const auto stream = device.NewStream("test").value();
  const Work work{[](void* argument, Stream&) {
                    (*static_cast<std::function<void()>*>(argument))();
                    return absl::OkStatus();
                  },
                  &function};
  ASSERT_TRUE(stream->Enqueue(work).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST(FakeMemoryTest, NewMemoryIsNanInEveryFloatingType) {
  FakeDevice device;
  const auto buffer = device.Allocate(64).value();
  RunOn(device, [&] {
    EXPECT_TRUE(std::isnan(static_cast<float*>(buffer->data())[3]));
    EXPECT_TRUE(std::isnan(static_cast<double*>(buffer->data())[7]));
    EXPECT_TRUE(std::isnan(ToFloat(static_cast<Float16*>(buffer->data())[1])));
    EXPECT_TRUE(std::isnan(ToFloat(static_cast<Bfloat16*>(buffer->data())[1])));
    EXPECT_GT(static_cast<int32_t*>(buffer->data())[0], 1 << 30);
  });
}

TEST(FakeMemoryTest, FreedMemoryIsFilledAgain) {
  FakeDevice device;
  auto buffer = device.Allocate(64).value();
  auto* const data = static_cast<uint16_t*>(buffer->data());
  RunOn(device, [&] { std::memset(data, 0, 64); });
  buffer.reset();
  RunOn(device, [&] { EXPECT_EQ(data[5], FakeMemory::kFreedPattern); });
  EXPECT_TRUE(device.Verify().ok());
}

TEST(FakeMemoryTest, ReusedMemoryIsFresh) {
  FakeDevice device;
  for (int i = 0; i < 3; ++i) {
    const auto buffer = device.Allocate(100).value();
    RunOn(device, [&] {
      EXPECT_EQ(static_cast<uint16_t*>(buffer->data())[49], FakeMemory::kFreshPattern);
      std::memset(buffer->data(), 0, 100);
    });
  }
  EXPECT_TRUE(device.Verify().ok());
}

TEST(FakeMemoryTest, NoticesWritesBehindABuffer) {
  FakeDevice device;
  const auto buffer = device.Allocate(10).value();
  RunOn(device, [&] { static_cast<char*>(buffer->data())[10] = 0; });
  const absl::Status status = device.Verify();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("fake:0: bytes after a buffer of 10 bytes"));
}

TEST(FakeMemoryTest, NoticesWritesBeforeABufferThatIsGone) {
  FakeDevice device;
  auto buffer = device.Allocate(10).value();
  RunOn(device, [&] { static_cast<char*>(buffer->data())[-1] = 0; });
  buffer.reset();
  EXPECT_THAT(device.Verify().message(), HasSubstr("bytes before a buffer of 10 bytes"));
}

TEST(FakeMemoryTest, NoticesWritesToFreedMemory) {
  FakeDevice device;
  auto buffer = device.Allocate(1000).value();
  auto* const data = static_cast<char*>(buffer->data());
  buffer.reset();
  RunOn(device, [&] { data[500] = 0; });
  EXPECT_THAT(device.Verify().message(), HasSubstr("was written after it was freed"));
}

TEST(FakeMemoryTest, NoticesWritesToFreedMemoryWhenItIsReused) {
  FakeDevice device;
  auto buffer = device.Allocate(1000).value();
  auto* const data = static_cast<char*>(buffer->data());
  buffer.reset();
  RunOn(device, [&] { data[500] = 0; });
  buffer = device.Allocate(1000).value();
  EXPECT_THAT(device.Verify().message(), HasSubstr("was written after it was freed"));
}

TEST(FakeMemoryTest, FreedNeighboursBecomeOneBlock) {
  FakeMemory memory("small", 64 << 10, /*protect=*/true);
  for (int round = 0; round < 4; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(memory.Allocate(1 << 10));
    // Every other one first: the gaps between them then have free neighbours on both sides.
    for (size_t i = 0; i < blocks.size(); i += 2) memory.Free(blocks[i]);
    for (size_t i = 1; i < blocks.size(); i += 2) memory.Free(blocks[i]);
    void* const all = memory.Allocate(30 << 10);
    ASSERT_NE(all, nullptr);
    memory.Free(all);
  }
  EXPECT_TRUE(memory.Verify().ok());
}

TEST(FakeMemoryTest, HasNoBlockWhenItIsFull) {
  FakeMemory memory("small", 4 << 10, /*protect=*/true);
  void* const block = memory.Allocate(2 << 10);
  EXPECT_EQ(memory.Allocate(2 << 10), nullptr);
  EXPECT_EQ(memory.Allocate(1 << 20), nullptr);
  memory.Free(block);
  EXPECT_NE(memory.Allocate(3 << 10), nullptr);
}

TEST(FakeDeviceDeathTest, HostCodeMayNotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  FakeDevice device;
  const auto buffer = device.Allocate(64).value();
  volatile float* const data = static_cast<float*>(buffer->data());
  EXPECT_DEATH(data[0] = 1.0f, "");
  EXPECT_DEATH((void)data[0], "");
  RunOn(device, [&] { data[0] = 2.0f; });
  EXPECT_DEATH((void)data[0], "");
}

TEST(FakeDeviceTest, ProtectionCanBeLeftOut) {
  FakeDevice device({.protect_memory = false});
  const auto buffer = device.Allocate(64).value();
  static_cast<float*>(buffer->data())[0] = 1.0f;
  EXPECT_TRUE(device.Verify().ok());
}

TEST(FakeDeviceTest, KnowsItsPointers) {
  FakeDevice device;
  const auto buffer = device.Allocate(64).value();
  EXPECT_TRUE(device.IsDevicePointer(buffer->data()));
  EXPECT_FALSE(device.IsDevicePointer(&device));
  EXPECT_FALSE(device.info().host_accessible);
  EXPECT_EQ(device.info().kind, DeviceKind::kFake);
}

TEST(FakeDeviceTest, TensorsOnItAreNotOnTheHost) {
  FakeDevice device;
  const Tensor tensor(DType::kFloat32, Shape{2, 2}, device.Allocate(16).value());
  EXPECT_FALSE(tensor.is_on_host());
  EXPECT_EQ(tensor.ToString(), "float32[2,2] on fake:0");
  EXPECT_THAT(ToDoubles(tensor).status().message(), HasSubstr("copy the tensor to the host first"));
  EXPECT_EQ(tensor.Clone().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CastTensor(tensor, DType::kInt8).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FakeDeviceTest, FailsTheAllocationItIsToldTo) {
  FakeDevice device;
  device.FailAllocation(2);
  EXPECT_TRUE(device.Allocate(8).ok());
  const absl::Status status = device.Allocate(8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the test made this allocation fail"));
  EXPECT_TRUE(device.Allocate(8).ok());
}

TEST(FakeDeviceTest, RefusesCopiesBetweenTheWrongMemories) {
  FakeDevice device;
  FakeDevice other({.index = 1});
  const auto stream = device.NewStream("test").value();
  const auto buffer = device.Allocate(64).value();
  const auto foreign = other.Allocate(64).value();
  char host[64] = {};
  EXPECT_THAT(device.CopyFromHost(*stream, buffer->data(), buffer->data(), 8).message(),
              HasSubstr("the host side of a copy is memory of fake:0"));
  EXPECT_THAT(device.CopyToHost(*stream, host, host, 8).message(),
              HasSubstr("not inside one buffer of fake:0"));
  EXPECT_FALSE(device.CopyOnDevice(*stream, buffer->data(), foreign->data(), 8).ok());
  EXPECT_FALSE(device.CopyFromHost(*stream, host, buffer->data(), 65).ok());
  EXPECT_THAT(other.CopyFromHost(*stream, host, foreign->data(), 8).message(),
              HasSubstr("needs a stream of that device"));
  EXPECT_TRUE(device.CopyFromHost(*stream, host, static_cast<char*>(buffer->data()) + 60, 4).ok());
}

// The order in which three streams of ten items each ran.
std::vector<int> Interleaving(uint64_t seed) {
  struct Item {
    std::vector<int>* order;
    int stream;
  };
  FakeDevice device({.scheduling = {.seed = seed, .turn = absl::InfiniteDuration()}});
  std::vector<int> order;
  std::vector<Item> items = {{&order, 0}, {&order, 1}, {&order, 2}};
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(device.NewStream("test").value());
  device.scheduler().Pause();
  for (int i = 0; i < 10; ++i) {
    for (int stream = 0; stream < 3; ++stream) {
      const Work work{[](void* argument, Stream&) {
                        const Item& item = *static_cast<Item*>(argument);
                        item.order->push_back(item.stream);
                        return absl::OkStatus();
                      },
                      &items[stream]};
      EXPECT_TRUE(streams[stream]->Enqueue(work).ok());
    }
  }
  EXPECT_TRUE(order.empty());
  device.scheduler().Resume();
  for (auto& stream : streams) EXPECT_TRUE(stream->Synchronize(kPatience).ok());
  return order;
}

TEST(FakeDeviceTest, TheSeedDecidesTheInterleaving) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const std::vector<int> order = Interleaving(seed);
    EXPECT_EQ(order.size(), 30u);
    EXPECT_EQ(order, Interleaving(seed)) << seed;
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(FakeDeviceTest, NeverRunsTwoItemsAtATimeWhenTurnsAreInfinite) {
  struct Watch {
    std::atomic<int> running{0};
    std::atomic<int> max_running{0};
  };
  Watch watch;
  const Work work{[](void* argument, Stream&) {
                    Watch& seen = *static_cast<Watch*>(argument);
                    const int running = ++seen.running;
                    if (running > seen.max_running) seen.max_running = running;
                    for (int i = 0; i < 10; ++i) std::this_thread::yield();
                    --seen.running;
                    return absl::OkStatus();
                  },
                  &watch};
  FakeDevice device({.scheduling = {.turn = absl::InfiniteDuration()}});
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(device.NewStream("test").value());
  for (int i = 0; i < 50; ++i) {
    for (auto& stream : streams) ASSERT_TRUE(stream->Enqueue(work).ok());
  }
  for (auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_EQ(watch.max_running, 1);
}

TEST(FakeDeviceTest, AFullStreamMakesTheHostWait) {
  FakeDevice device({.stream_capacity = 2});
  const auto stream = device.NewStream("narrow").value();
  int count = 0;
  const Work work{[](void* argument, Stream&) {
                    ++*static_cast<int*>(argument);
                    return absl::OkStatus();
                  },
                  &count};
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream->Enqueue(work).ok());
  ASSERT_TRUE(stream->Synchronize(kPatience).ok());
  EXPECT_EQ(count, 100);
}

TEST(FakeDeviceTest, AStreamThatStaysFullIsAnError) {
  FakeClock clock;
  FakeDevice device({.stream_capacity = 1, .enqueue_timeout = absl::Seconds(9), .clock = &clock});
  const auto stream = device.NewStream("narrow").value();
  const auto event = device.NewEvent().value();
  device.scheduler().Pause();
  ASSERT_TRUE(stream->Record(*event).ok());
  absl::Status status;
  std::thread host([&] { status = stream->Record(*event); });
  clock.AwaitWaiters(1);
  clock.Advance(absl::Seconds(9));
  host.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "stream narrow of fake:0 was full, with 1 items, for 9s");
}

TEST(FakeDeviceTest, SynchronizeSaysWhatIsLeft) {
  FakeClock clock;
  FakeDevice device({.clock = &clock});
  const auto stream = device.NewStream("compute").value();
  const auto event = device.NewEvent().value();
  device.scheduler().Pause();
  ASSERT_TRUE(stream->Record(*event).ok());
  ASSERT_TRUE(stream->Record(*event).ok());
  absl::Status status;
  std::thread host([&] { status = stream->Synchronize(absl::Seconds(3)); });
  clock.AwaitWaiters(1);
  clock.Advance(absl::Seconds(3));
  host.join();
  EXPECT_EQ(status.message(),
            "stream compute of fake:0 has not finished within 3s: 2 items are left, the first of "
            "them has not started");
}

TEST(FakeDeviceTest, DevicesThatShareASchedulerWaitForEachOther) {
  const auto scheduler = std::make_shared<FakeScheduler>(FakeSchedulerOptions{.seed = 3});
  FakeDevice first({.index = 0, .scheduler = scheduler});
  FakeDevice second({.index = 1, .scheduler = scheduler});
  const auto producer = first.NewStream("producer").value();
  const auto consumer = second.NewStream("consumer").value();
  const auto event = first.NewEvent().value();
  const auto done = second.NewEvent().value();
  scheduler->Pause();
  ASSERT_TRUE(producer->Record(*event).ok());
  ASSERT_TRUE(consumer->Wait(*event).ok());
  ASSERT_TRUE(consumer->Record(*done).ok());
  EXPECT_FALSE(done->Done());
  scheduler->Resume();
  ASSERT_TRUE(consumer->Synchronize(kPatience).ok());
  EXPECT_TRUE(event->Done());
}

TEST(FakeDeviceTest, OtherDevicesEventsMustBeDone) {
  FakeDevice first;
  FakeDevice second({.index = 1});
  const auto producer = first.NewStream("producer").value();
  const auto consumer = second.NewStream("consumer").value();
  const auto event = first.NewEvent().value();
  EXPECT_EQ(consumer->Record(*event).code(), absl::StatusCode::kInvalidArgument);
  first.scheduler().Pause();
  ASSERT_TRUE(producer->Record(*event).ok());
  EXPECT_EQ(consumer->Wait(*event).code(), absl::StatusCode::kFailedPrecondition);
  first.scheduler().Resume();
  ASSERT_TRUE(producer->Synchronize(kPatience).ok());
  EXPECT_TRUE(consumer->Wait(*event).ok());
}

TEST(FakeDeviceTest, AnEventMayEndBeforeItsRecording) {
  FakeDevice device;
  const auto stream = device.NewStream("test").value();
  auto event = device.NewEvent().value();
  device.scheduler().Pause();
  ASSERT_TRUE(stream->Record(*event).ok());
  event.reset();
  device.scheduler().Resume();
  EXPECT_TRUE(stream->Synchronize(kPatience).ok());
}

TEST(FakeDeviceTest, AStreamThatEndsRunsItsWorkEvenWhenPaused) {
  FakeDevice device;
  auto stream = device.NewStream("test").value();
  const auto event = device.NewEvent().value();
  device.scheduler().Pause();
  ASSERT_TRUE(stream->Record(*event).ok());
  stream.reset();
  EXPECT_TRUE(event->Done());
}

TEST(FakeDeviceTest, CanBeOfTheKindOfAGpu) {
  const FakeDevice device({.kind = DeviceKind::kCuda, .index = 2});
  EXPECT_EQ(device.info().kind, DeviceKind::kCuda);
  EXPECT_EQ(device.info().name, "cuda:2");
}

// As on a device whose work launches kernels: Enqueue calls it, in the caller's thread.
TEST(FakeDeviceTest, WorkThatLaunchesRunsAtOnce) {
  FakeDevice device({.runs_host_work = false});
  device.scheduler().Pause();
  const auto stream = device.NewStream("test").value();
  std::thread::id thread;
  const Work work{[](void* argument, Stream&) {
                    *static_cast<std::thread::id*>(argument) = std::this_thread::get_id();
                    return absl::OkStatus();
                  },
                  &thread};
  EXPECT_EQ(stream->Enqueue(work), absl::OkStatus());
  EXPECT_EQ(thread, std::this_thread::get_id());
  device.scheduler().Resume();
  const absl::Status error = absl::AbortedError("no more");
  const Work failing{[](void*, Stream&) { return absl::AbortedError("no more"); }, nullptr};
  EXPECT_EQ(stream->Enqueue(failing), error);
  EXPECT_EQ(stream->Enqueue(work), error);
  EXPECT_EQ(stream->Synchronize(kPatience), error);
}

}  // namespace
}  // namespace weft::testing
