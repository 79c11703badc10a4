#include "ops/testing/emulator/emulated_device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/body_runner.h"
#include "tensor/testing/device_conformance.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConformingDevice Emulated(const std::string& name, uint64_t seed,
                          const FakeSchedulerOptions& scheduling) {
  return {.name = name,
          .make =
              [seed, scheduling](size_t memory_limit) {
                return std::make_unique<EmulatedDevice>(
                    EmulatedDeviceOptions{.memory_limit = memory_limit,
                                          .seed = seed,
                                          .scheduling = scheduling,
                                          .runs_host_work = true});
              },
          .asynchronous = true};
}

INSTANTIATE_TEST_SUITE_P(Emulated, DeviceConformanceTest,
                         ::testing::Values(Emulated("Seed1", 1, {}), Emulated("Seed2", 2, {}),
                                           Emulated("Concurrent", 3,
                                                    {.turn = absl::ZeroDuration()})),
                         ConformanceName);

TEST(EmulatedDeviceTest, IsAGpuOfItsIndex) {
  const EmulatedDevice device({.index = 3});
  EXPECT_EQ(device.info().kind, DeviceKind::kCuda);
  EXPECT_EQ(device.info().name, "cuda:3");
  EXPECT_FALSE(device.info().host_accessible);
}

// Launches of work that Enqueue runs, or of a thread that has the stream, wait for their turn.
TEST(EmulatedDeviceTest, LaunchesRunLaterInTheOrderOfTheirStream) {
  BodyRunner runner;
  int32_t* const x = runner.Input(std::vector<int32_t>{1, 2, 3});
  runner.device().scheduler().Pause();
  const auto add = [x](auto& gpu) { gpu.Global(x)[gpu.thread()] += 10; };
  const auto twice = [x](auto& gpu) { gpu.Global(x)[gpu.thread()] *= 2; };
  EXPECT_EQ(runner.Launch({.threads = 3}, add), 0);
  EXPECT_EQ(runner.Launch({.threads = 3}, twice), 0);
  EXPECT_TRUE(runner.device().launches().empty());
  runner.device().scheduler().Resume();
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  EXPECT_THAT(runner.Read(x, 3), ElementsAre(22, 24, 26));
}

TEST(EmulatedDeviceTest, WorkLaunchesInItsPlace) {
  for (const bool runs_host_work : {false, true}) {
    BodyRunner runner(EmulatedDeviceOptions{.runs_host_work = runs_host_work});
    int32_t* const x = runner.Input(std::vector<int32_t>{5});
    const auto launch = [](void* argument, Stream& stream) {
      auto* const data = static_cast<int32_t*>(argument);
      const int code = EmulateLaunch(stream.native_handle(), {.threads = 1}, 32,
                                     [data](auto& gpu) { gpu.Global(data)[0] *= 3; });
      return code == 0 ? absl::OkStatus() : absl::InternalError("refused");
    };
    EXPECT_EQ(runner.stream().Enqueue(Work{launch, x}), absl::OkStatus());
    EXPECT_EQ(runner.Launch({.threads = 1}, [x](auto& gpu) { gpu.Global(x)[0] += 1; }), 0);
    EXPECT_EQ(runner.Finish(), absl::OkStatus());
    EXPECT_THAT(runner.Read(x, 1), ElementsAre(16)) << runs_host_work;
  }
}

TEST(EmulatedDeviceTest, TheErrorOfWorkIsItsStreams) {
  BodyRunner runner;
  const auto fail = [](void*, Stream&) { return absl::AbortedError("no more"); };
  EXPECT_EQ(runner.stream().Enqueue(Work{fail, nullptr}), absl::AbortedError("no more"));
  EXPECT_EQ(runner.Finish(), absl::AbortedError("no more"));
  EXPECT_EQ(runner.Launch({}, [](auto&) {}), kCudaInvalidResourceHandle);
}

// The host does not see what a kernel has reported before it waits; then it is an error for good.
TEST(EmulatedDeviceTest, AFaultIsTheErrorOfItsStream) {
  BodyRunner runner;
  DeviceFault* const fault = runner.stream().fault();
  ASSERT_NE(fault, nullptr);
  const char* const source = "Gather 'embed': index";
  const auto report = [fault, source](auto& gpu) {
    const auto is_set = gpu.Global(&fault->is_set);
    if (gpu.AtomicCompareExchange(is_set, 0, int32_t{0}, int32_t{1}) != 0) return;
    const auto values = gpu.Global(&fault->value);
    values[0] = 17;
    values[1] = 5;
    values[2] = 0;
    values[3] = 12;
    gpu.Global(&fault->source)[0] = source;
  };
  EXPECT_EQ(runner.Launch({.blocks = 3, .threads = 64}, report), 0);
  const absl::Status status = runner.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Gather 'embed': index is 17 at"));
  EXPECT_EQ(runner.stream().Enqueue(Work{nullptr, nullptr}), status);
  EXPECT_EQ(runner.device().Verify(), absl::OkStatus());
  EXPECT_EQ(runner.device().bytes_in_use(), 0U);
}

TEST(EmulatedDeviceTest, AReportSaysWhoDidWhatWhere) {
  BodyRunner runner;
  float* const y = runner.Memory<float>(10);
  runner.device().Describe(y, "output 0");
  const auto far = [y](auto& gpu) {
    if (gpu.block() == 1 && gpu.block_y() == 2 && gpu.thread() == 7) gpu.Global(y)[10] = 1.0F;
  };
  EXPECT_EQ(runner.Launch({.blocks = 2, .threads = 8, .blocks_y = 3}, far), 0);
  const absl::Status status = runner.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("AReportSaysWhoDidWhatWhere"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block 1,2, thread 7: writes 4 bytes at output 0 + 40, outside of its 40"));
  EXPECT_EQ(runner.device().report_count(), 1);
  runner.device().ClearReports();
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
}

TEST(EmulatedDeviceTest, KeepsTheFirstReportsAndCountsAll) {
  BodyRunner runner;
  float* const y = runner.Memory<float>(1);
  EXPECT_EQ(runner.Launch({.threads = 100}, [y](auto& gpu) { gpu.Global(y)[1] = 1.0F; }), 0);
  EXPECT_THAT(std::string(runner.Finish().message()), HasSubstr("(and 99 more reports)"));
  EXPECT_EQ(runner.device().report_count(), 100);
  EXPECT_EQ(runner.device().reports().size(), 3U);
}

TEST(EmulatedDeviceTest, RecordsLaunchesAndTheirBytes) {
  BodyRunner runner;
  const float* const x = runner.Input(std::vector<float>(100, 1.0F));
  float* const y = runner.Memory<float>(100);
  const auto copy = [x, y](auto& gpu) {
    if (gpu.index() < 100) gpu.Global(y)[gpu.index()] = gpu.Global(x)[gpu.index()];
  };
  EXPECT_EQ(runner.Launch({.blocks = 4, .threads = 32}, copy), 0);
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  const std::vector<EmulatedLaunchRecord> launches = runner.device().launches();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_THAT(launches[0].body, HasSubstr("RecordsLaunchesAndTheirBytes"));
  EXPECT_EQ(launches[0].grid.blocks, 4);
  EXPECT_EQ(launches[0].stream, "test");
  EXPECT_EQ(launches[0].bytes_read, 400);
  EXPECT_EQ(launches[0].bytes_written, 400);
}

TEST(EmulatedDeviceTest, WhatTheHostWroteCanBeMarked) {
  BodyRunner runner;
  float* const x = runner.Memory<float>(8);
  runner.device().MarkWritten(x + 2, 4 * sizeof(float));
  runner.Launch({.threads = 4}, [x](auto& gpu) { gpu.Global(x)[gpu.thread() + 2] += 1.0F; });
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  runner.Launch({.threads = 1}, [x](auto& gpu) { gpu.Global(x)[6] += 1.0F; });
  EXPECT_EQ(runner.Finish().code(), absl::StatusCode::kInternal);
}

// Whether bytes were written goes with them.
TEST(EmulatedDeviceTest, CopiesOnTheDeviceCarryWhatIsUnwritten) {
  BodyRunner runner;
  float* const x = runner.Memory<float>(4);
  float* const y = runner.Memory<float>(4);
  runner.Launch({.threads = 3}, [x](auto& gpu) { gpu.Global(x)[gpu.thread()] = 1.0F; });
  EXPECT_EQ(runner.device().CopyOnDevice(runner.stream(), x, y, 16), absl::OkStatus());
  runner.Launch({.threads = 3}, [y](auto& gpu) { gpu.Global(y)[gpu.thread()] += 1.0F; });
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  runner.Launch({.threads = 1}, [y](auto& gpu) { gpu.Global(y)[3] += 1.0F; });
  EXPECT_THAT(std::string(runner.Finish().message()), HasSubstr("which nobody has written"));
}

// An order that goes over a second device, and over the host.
TEST(EmulatedDeviceTest, EventsOfOtherDevicesOrderStreams) {
  const auto scheduler = std::make_shared<FakeScheduler>(FakeSchedulerOptions{});
  BodyRunner runner(EmulatedDeviceOptions{.scheduler = scheduler});
  EmulatedDevice far({.index = 1, .scheduler = scheduler});
  const auto second = runner.device().NewStream("second").value();
  const auto between = far.NewStream("between").value();
  const auto event = runner.device().NewEvent().value();
  const auto other_event = far.NewEvent().value();
  int32_t* const x = runner.Input(std::vector<int32_t>{1});
  const auto add = [x](auto& gpu) { gpu.Global(x)[0] += 1; };
  runner.Launch({.threads = 1}, add);
  EXPECT_EQ(runner.stream().Record(*event), absl::OkStatus());
  EXPECT_EQ(between->Wait(*event), absl::OkStatus());
  EXPECT_EQ(between->Record(*other_event), absl::OkStatus());
  EXPECT_EQ(second->Wait(*other_event), absl::OkStatus());
  runner.LaunchOn(*second, {.threads = 1}, add);
  EXPECT_EQ(second->Synchronize(absl::Seconds(60)), absl::OkStatus());
  runner.Launch({.threads = 1}, add);
  EXPECT_EQ(runner.Finish(), absl::OkStatus());
  EXPECT_THAT(runner.Read(x, 1), ElementsAre(4));
}

}  // namespace
}  // namespace weft::testing
