#include "tensor/cpu_device.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(CpuDeviceTest, IsOneForTheProcess) {
  EXPECT_EQ(&CpuDevice(), &CpuDevice());
  EXPECT_EQ(CpuDevice().info().name, "cpu:0");
  EXPECT_EQ(CpuDevice().info().kind, DeviceKind::kCpu);
  EXPECT_TRUE(CpuDevice().info().host_accessible);
}

TEST(CpuDeviceTest, NewDevicesKeepWhatTheyAreTold) {
  DeviceInfo info;
  info.index = 3;
  info.memory_limit = 100;
  EXPECT_EQ(NewCpuDevice(info)->info().name, "cpu:3");
  info.name = "worker-7";
  EXPECT_EQ(NewCpuDevice(info)->info().name, "worker-7");
  EXPECT_EQ(NewCpuDevice(info)->info().memory_limit, 100u);
}

TEST(CpuDeviceTest, LargeBuffersStartAtAHugePageAndCanBeWritten) {
  const size_t bytes = (size_t{5} << 20) + 13;
  const auto buffer = CpuDevice().Allocate(bytes).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size_t{2} << 20), 0u);
  std::memset(buffer->data(), 1, bytes);
  EXPECT_EQ(static_cast<char*>(buffer->data())[bytes - 1], 1);
}

TEST(CpuDeviceTest, WorkRunsBeforeEnqueueReturns) {
  const auto stream = CpuDevice().NewStream("test").value();
  int count = 0;
  const Work work{[](void* argument, Stream&) {
                    ++*static_cast<int*>(argument);
                    return absl::OkStatus();
                  },
                  &count};
  ASSERT_TRUE(stream->Enqueue(work).ok());
  EXPECT_EQ(count, 1);
}

TEST(CpuDeviceTest, CannotWaitForAnEventOfAnotherDeviceThatIsNotDone) {
  testing::FakeDevice fake;
  const auto recorder = fake.NewStream("recorder").value();
  const auto event = fake.NewEvent().value();
  const auto stream = CpuDevice().NewStream("waiter").value();
  fake.scheduler().Pause();
  ASSERT_TRUE(recorder->Record(*event).ok());
  const absl::Status status = stream->Wait(*event);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("stream waiter of cpu:0"));
  fake.scheduler().Resume();
  ASSERT_TRUE(recorder->Synchronize(absl::Seconds(30)).ok());
  EXPECT_TRUE(stream->Wait(*event).ok());
}

TEST(CpuDeviceTest, TheProcesssOwnCanBeLimitedForAWhile) {
  const size_t before = CpuDevice().info().memory_limit;
  {
    const CpuMemoryLimit limit(CpuDevice().bytes_in_use() + 1000);
    const auto small = CpuDevice().Allocate(600);
    EXPECT_TRUE(small.ok()) << small.status();
    const absl::Status status = CpuDevice().Allocate(600).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("cpu:0 cannot allocate 600 bytes"));
  }
  EXPECT_EQ(CpuDevice().info().memory_limit, before);
  EXPECT_TRUE(CpuDevice().Allocate(600).ok());
}

TEST(CpuDeviceDeathTest, MustOutliveItsBuffers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto device = NewCpuDevice(DeviceInfo{});
        const auto buffer = device->Allocate(10).value();
        device.reset();
      },
      "device cpu:0 ends before its buffers");
}

}  // namespace
}  // namespace weft
