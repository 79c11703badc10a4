// The requirement of a worker whose device has memory of its own: each side is counted for itself,
// and a job that does not fit the device is refused before its first step.
#include <memory>
#include <string>

#include "distributed/control_calls.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/nccl/testing/fake_card.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/status_macros.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTestVersion[] = "test";

// The sum job on two fake devices; that of rank 0 has so much memory, and the job gives it so much.
class DeviceJob {
 public:
  DeviceJob(size_t device_limit, int64_t given)
      : device_({.memory_limit = device_limit}),
        cluster_({&device_, &other_}, OpenSumJobInput, kTestVersion),
        coordinator_(cluster_.clients()) {
    Join(17, given);
  }

  void Join(uint64_t job_id, int64_t given) {
    JobMembership membership;
    membership.job_id = job_id;
    membership.version = kTestVersion;
    const auto joined = coordinator_.Join(membership, {given, 0});
    EXPECT_TRUE(joined.ok()) << joined.status();
  }

  absl::StatusOr<MemoryRequirement> Add() {
    const auto added = coordinator_.AddProgram("train", SumJobPartitions(2), "data");
    if (!added.ok()) return added.status();
    return added->front();
  }
  absl::Status RunStep() {
    return coordinator_.RunSteps({{"train", 0, 1, {{"rate", 0.5}}}}, [](const StepReport&) {});
  }
  size_t peak_bytes() const { return device_.peak_bytes(); }
  // What the worker of rank 0 says of its job.
  int64_t ReportedPeak() {
    const auto memory = coordinator_.Ask(0, MemoryRequest{});
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? memory->device_peak_bytes : -1;
  }
  FakeDevice& device() { return device_; }

 private:
  FakeDevice device_;
  FakeDevice other_;
  InProcessCluster cluster_;
  Coordinator coordinator_;
};

TEST(DeviceMemory, WhatAStepAllocatesOnTheDeviceIsWhatWasRequired) {
  DeviceJob job(/*device_limit=*/0, /*given=*/0);
  const auto required = job.Add();
  ASSERT_TRUE(required.ok()) << required.status();
  EXPECT_TRUE(required->on_device);
  // The variable w of three floats, and the arena: the host's total has neither.
  EXPECT_GE(required->variable_bytes, kSumJobWidth * int64_t{sizeof(float)});
  EXPECT_EQ(required->device_total(), required->variable_bytes + required->arena_bytes +
                                          required->device_constant_bytes + required->packed_bytes);
  EXPECT_GE(required->total(), kDeviceProcessGrowthBytes);
  const absl::Status run = job.RunStep();
  ASSERT_TRUE(run.ok()) << run;
  EXPECT_GT(job.peak_bytes(), 0u);
  EXPECT_LE(static_cast<int64_t>(job.peak_bytes()), required->device_total());
}

TEST(DeviceMemory, TheReportedPeakIsOfTheJobNotOfEarlierOnes) {
  DeviceJob job(/*device_limit=*/0, /*given=*/0);
  const auto required = job.Add();
  ASSERT_TRUE(required.ok()) << required.status();
  constexpr int64_t kMore = int64_t{1} << 20;
  ASSERT_TRUE(job.device().Allocate(kMore).ok());  // and freed
  EXPECT_GE(job.ReportedPeak(), kMore);
  job.Join(/*job_id=*/18, /*given=*/0);
  EXPECT_LT(job.ReportedPeak(), kMore);
  ASSERT_TRUE(job.Add().ok());
  const absl::Status run = job.RunStep();
  ASSERT_TRUE(run.ok()) << run;
  EXPECT_GT(job.ReportedPeak(), 0);
  EXPECT_LE(job.ReportedPeak(), required->device_total());
}

TEST(DeviceMemory, AJobThatDoesNotFitTheDeviceIsRefused) {
  const auto required = DeviceJob(0, 0).Add();
  ASSERT_TRUE(required.ok()) << required.status();
  const auto need = static_cast<size_t>(required->device_total());
  EXPECT_TRUE(DeviceJob(need, 0).Add().ok());
  const absl::Status refused = DeviceJob(need - 1, 0).Add().status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(" of the memory of fake:0 (what it may allocate there) and needs "),
                    HasSubstr("the job was refused before its first step")));
}

// As the cluster file's `memory:` does.
TEST(DeviceMemory, AJobMayGiveLessThanTheDeviceHas) {
  const auto required = DeviceJob(0, 0).Add();
  ASSERT_TRUE(required.ok()) << required.status();
  EXPECT_TRUE(DeviceJob(0, required->device_total()).Add().ok());
  const absl::Status refused = DeviceJob(0, required->device_total() - 1).Add().status();
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(" of the memory of fake:0 (what the job gives it) and needs "));
}

// The sum job on two cards that NCCL joins, the first of which has so much memory.
absl::StatusOr<MemoryRequirement> RequiredOnCards(size_t memory_limit) {
  FakeNcclWorld world;
  FakeCard first(world, 0, /*seed=*/1, /*version=*/0, memory_limit);
  FakeCard second(world, 1, /*seed=*/2);
  InProcessCluster cluster({&first, &second}, OpenSumJobInput, kTestVersion,
                           {first.card(), second.card()});
  Coordinator coordinator(cluster.clients());
  JobMembership membership;
  membership.job_id = 19;
  membership.version = kTestVersion;
  membership.stall_timeout_seconds = 600;
  WEFT_RETURN_IF_ERROR(coordinator.Join(membership).status());
  WEFT_ASSIGN_OR_RETURN(const auto added,
                        coordinator.AddProgram("train", SumJobPartitions(2), "data"));
  return added.front();
}

// What the program allocates would fit; the buffers of the communicator do not.
TEST(DeviceMemory, AJobWhoseCommunicatorsDoNotFitTheCardIsRefused) {
  const auto required = RequiredOnCards(0);
  ASSERT_TRUE(required.ok()) << required.status();
  EXPECT_EQ(required->nccl_bytes, int64_t{192} << 20);  // a group of two
  EXPECT_EQ(required->device_total(), required->device_allocated() + required->nccl_bytes);
  const auto need = static_cast<size_t>(required->device_total());
  const auto fits = RequiredOnCards(need);
  EXPECT_TRUE(fits.ok()) << fits.status();
  const absl::Status refused = RequiredOnCards(need - 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("worker:0"), HasSubstr("NCCL 192 MiB"),
                    HasSubstr("the job was refused before its first step")));
}

}  // namespace
}  // namespace weft::testing
