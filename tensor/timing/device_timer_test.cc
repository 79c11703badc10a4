// Measured seconds against the truth, on a device whose time is a number: each piece of its work
// takes what the test says, the host takes some time for each call, and a wait takes more.
#include "tensor/timing/device_timer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/device.h"
#include "tensor/timing/device_copies.h"

namespace weft {
namespace {

// Time of the host; only calls of the device below let it pass.
class StepClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch() + absl::Nanoseconds(MonotonicNanos()); }
  int64_t MonotonicNanos() override { return static_cast<int64_t>(1e9 * seconds); }
  bool WaitUntil(CondVar&, Mutex&, absl::Time) override { std::abort(); }

  double seconds = 1;
};

struct Speeds {
  double piece = 0;         // of work on the device
  double launch = 5e-6;     // of the host, for a call
  double wait = 1e-5;       // of the host, besides what it waits for
  double copy = 0;          // of the device, for a copy
  double copy_rate = 1e10;  // bytes per second to and from the host
  double memory_rate = 1e12;
  double first = 0;  // the first piece takes so much longer
  bool records = true;
};

class TimedStream final : public Stream {
 public:
  TimedStream(StepClock& clock, const Speeds& speeds) : clock_(clock), speeds_(speeds) {}

  // Work of `seconds` on the device.
  absl::Status Take(double seconds) {
    clock_.seconds += speeds_.launch;
    if (is_recording_) {
      recorded_ += seconds;
      return absl::OkStatus();
    }
    busy_until_ = std::max(busy_until_, clock_.seconds) + seconds;
    return absl::OkStatus();
  }
  absl::Status Enqueue(Work work) override { return work.run(work.argument, *this); }
  absl::Status Record(Event&) override { return absl::UnimplementedError("no events"); }
  absl::Status Wait(Event&) override { return absl::UnimplementedError("no events"); }
  absl::Status Synchronize(absl::Duration) override {
    runs_ = 0;
    if (waits_that_fail > 0 && --waits_that_fail == 0) {
      runs_ = 1;
      return absl::DeadlineExceededError("it takes too long");
    }
    if (is_recording_) return absl::FailedPreconditionError("a wait while recording");
    ++waits;
    clock_.seconds = std::max(clock_.seconds, busy_until_) + speeds_.wait;
    return absl::OkStatus();
  }
  absl::Status BeginRecording() override {
    if (!speeds_.records) return absl::UnimplementedError("it cannot record");
    is_recording_ = true;
    recorded_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<RecordedWork>> EndRecording(
      std::unique_ptr<RecordedWork>) override {
    is_recording_ = false;
    waits_that_fail = fails_once_recorded ? 2 : 0;
    return std::make_unique<Recording>(recorded_, *this);
  }

  int waits = 0;
  int waits_that_fail = 0;           // the so-manieth from now on
  bool fails_once_recorded = false;  // in the second round of a recording
  bool ended_too_early = false;      // a recording, with runs of it under way

 private:
  class Recording final : public RecordedWork {
   public:
    Recording(double seconds, TimedStream& stream) : seconds_(seconds), stream_(stream) {}
    ~Recording() override {
      if (stream_.runs_ > 0) stream_.ended_too_early = true;
    }
    absl::Status Run(Stream& stream) override {
      ++stream_.runs_;
      return static_cast<TimedStream&>(stream).Take(seconds_);
    }

   private:
    const double seconds_;
    TimedStream& stream_;
  };

  StepClock& clock_;
  const Speeds speeds_;
  double busy_until_ = 0;
  bool is_recording_ = false;
  double recorded_ = 0;
  int runs_ = 0;  // of recordings, under way
};

class PlainBuffer final : public Buffer {
 public:
  PlainBuffer(Device& device, std::vector<std::byte> bytes)
      : Buffer(device, bytes.data(), bytes.size()), bytes_(std::move(bytes)) {}

 private:
  const std::vector<std::byte> bytes_;
};

class TimedDevice final : public Device {
 public:
  TimedDevice(StepClock& clock, const Speeds& speeds, size_t limit = 0)
      : clock_(clock), speeds_(speeds) {
    info_.host_accessible = info_.runs_host_work = false;
    info_.memory_limit = limit;
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override {
    allocated += bytes;
    return std::make_shared<PlainBuffer>(*this, std::vector<std::byte>(bytes));
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string&) override {
    return std::make_unique<TimedStream>(clock_, speeds_);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    return absl::UnimplementedError("no events");
  }
  absl::Status CopyFromHost(Stream& stream, const void*, void*, size_t bytes) override {
    return Copy(stream, speeds_.copy + static_cast<double>(bytes) / speeds_.copy_rate);
  }
  absl::Status CopyToHost(Stream& stream, const void*, void*, size_t bytes) override {
    return Copy(stream, speeds_.copy + 2 * static_cast<double>(bytes) / speeds_.copy_rate);
  }
  absl::Status CopyOnDevice(Stream& stream, const void*, void*, size_t bytes) override {
    return Copy(stream, static_cast<double>(bytes) / speeds_.memory_rate);
  }
  size_t bytes_in_use() const override { return 0; }
  size_t peak_bytes() const override { return allocated; }
  void ForgetPeakBytes() override {}

  size_t allocated = 0;

 private:
  static absl::Status Copy(Stream& stream, double seconds) {
    return static_cast<TimedStream&>(stream).Take(seconds);
  }
  StepClock& clock_;
  const Speeds speeds_;
  DeviceInfo info_;
};

double Measured(const Speeds& speeds, const DeviceTimerOptions& options = {}) {
  StepClock clock;
  TimedStream stream(clock, speeds);
  double first = speeds.first;
  const auto enqueue = [&] {
    const double seconds = speeds.piece + first;
    first = 0;
    return stream.Take(seconds);
  };
  const auto seconds = SecondsOnDevice(stream, clock, enqueue, options);
  EXPECT_TRUE(seconds.ok()) << seconds.status();
  return seconds.ok() ? *seconds : -1;
}

// A launch takes the host longer than the device takes for the first of these.
TEST(SecondsOnDeviceTest, IsWhatTheDeviceTakesToOnePercent) {
  for (const double piece : {2e-6, 5e-5, 1e-3, 0.3}) {
    Speeds speeds;
    speeds.piece = piece;
    EXPECT_NEAR(Measured(speeds), piece, 0.015 * piece) << piece;
  }
}

TEST(SecondsOnDeviceTest, DearWaitsMakeRoundsLonger) {
  Speeds speeds;
  speeds.piece = 1e-4;
  speeds.wait = 1e-3;
  EXPECT_NEAR(Measured(speeds), 1e-4, 0.015e-4);
}

// The host is the limit then, as it would be in a step.
TEST(SecondsOnDeviceTest, WithoutRecordingsItIsTheLongerOfPieceAndLaunch) {
  Speeds speeds;
  speeds.records = false;
  speeds.piece = 1e-6;
  EXPECT_NEAR(Measured(speeds), 5e-6, 0.1e-6);
  speeds.records = true;
  DeviceTimerOptions options;
  options.can_record = false;
  EXPECT_NEAR(Measured(speeds, options), 5e-6, 0.1e-6);
}

TEST(SecondsOnDeviceTest, WhatIsInitialisedAtFirstUseDoesNotCount) {
  Speeds speeds;
  speeds.piece = 1e-4;
  speeds.first = 2;
  EXPECT_NEAR(Measured(speeds), 1e-4, 0.015e-4);
}

TEST(SecondsOnDeviceTest, ErrorsOfTheWorkAreReturned) {
  StepClock clock;
  TimedStream stream(clock, {});
  const auto refused =
      SecondsOnDevice(stream, clock, [] { return absl::InvalidArgumentError("no such launch"); });
  EXPECT_EQ(refused.status(), absl::InvalidArgumentError("no such launch"));
}

TEST(SecondsOnDeviceTest, ARecordingEndsAfterItsRunsAlsoWhereAWaitTakesTooLong) {
  StepClock clock;
  Speeds speeds;
  speeds.piece = 1e-5;
  TimedStream stream(clock, speeds);
  stream.fails_once_recorded = true;
  const auto seconds = SecondsOnDevice(stream, clock, [&] { return stream.Take(speeds.piece); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(seconds.status())) << seconds.status();
  EXPECT_FALSE(stream.ended_too_early);
}

TEST(FitCopiesTest, NoCopyTakesLessThanNothing) {
  const CopyLine line = FitCopies({{1000, 1e-6}, {4000, 5e-6}});
  EXPECT_EQ(line.seconds, 0);
  EXPECT_GT(line.bytes_per_second, 8e8);
  EXPECT_LT(line.bytes_per_second, 1e9);
}

// A copy that is waited for takes the host's call and wait besides.
TEST(MeasureDeviceCopiesTest, FindsLatencyAndRateOfEachDirection) {
  StepClock clock;
  Speeds speeds;
  speeds.copy = 8e-6;
  TimedDevice device(clock, speeds);
  const auto copies = MeasureDeviceCopies(device, clock);
  ASSERT_TRUE(copies.ok()) << copies.status();
  const double besides = speeds.copy + speeds.launch + speeds.wait;
  EXPECT_NEAR(copies->from_host.seconds, besides, 1e-2 * besides);
  EXPECT_NEAR(copies->from_host.bytes_per_second, 1e10, 1e7);
  EXPECT_NEAR(copies->to_host.seconds, besides, 1e-2 * besides);
  EXPECT_NEAR(copies->to_host.bytes_per_second, 5e9, 1e7);
  EXPECT_NEAR(copies->on_device.bytes_per_second, 1e12, 1.5e10);
}

TEST(MeasureDeviceCopiesTest, TakesASixteenthOfASmallDevice) {
  StepClock clock;
  TimedDevice device(clock, {}, /*limit=*/size_t{4} << 20);
  const auto copies = MeasureDeviceCopies(device, clock);
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_EQ(device.allocated, 2 * (size_t{4} << 20) / 16);
  EXPECT_NEAR(copies->from_host.bytes_per_second, 1e10, 2e7);
}

TEST(MeasureDeviceCopiesTest, NothingIsCopiedWhereTheHostReachesAll) {
  const auto copies = MeasureDeviceCopies(CpuDevice(), RealClock());
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_EQ(*copies, DeviceCopies());
}

}  // namespace
}  // namespace weft
