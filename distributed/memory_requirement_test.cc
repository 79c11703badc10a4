#include "distributed/memory_requirement.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

MemoryRequirement Example() {
  MemoryRequirement requirement;
  requirement.variable_bytes = 300 * kMebibyte;
  requirement.arena_bytes = 80 * kMebibyte + kMebibyte / 2;
  requirement.workspace_bytes = 5 * kMebibyte;
  requirement.process_bytes = 24 * kMebibyte;
  requirement.transport_bytes = 8 * kMebibyte;
  return requirement;
}

TEST(MemoryRequirement, TotalIsTheSumOfTheParts) {
  MemoryRequirement requirement = Example();
  EXPECT_EQ(requirement.total(), 412 * kMebibyte + kMebibyte / 2);
  requirement.constant_bytes = 1;
  requirement.packed_bytes = 2;
  requirement.staging_bytes = 4;
  requirement.input_bytes = 8;
  requirement.loading_bytes = 16;
  EXPECT_EQ(requirement.total(), 412 * kMebibyte + kMebibyte / 2 + 31);
}

TEST(MemoryRequirement, IsDescribedLargestPartFirst) {
  EXPECT_EQ(DescribeMemory(Example()),
            "412 MiB: variables 300 MiB, arena 80.5 MiB, process 24 MiB, transport 8 MiB");
  EXPECT_EQ(DescribeMemory({}), "0 B");
}

// What the system itself says of this process's page tables.
int64_t PageTablesOfThisProcess() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmPTE:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// They were to be within the allowance for growth, whatever the size of the job: a worker of 8 GiB
// has 16 MiB of them, more than all of it.
TEST(PageTableBytes, AreWhatTheSystemTakesToMap) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr int64_t kEnds = 16 << 10;  // of the mapping, and the levels above
  const int64_t before = PageTablesOfThisProcess();
  if (before == 0) GTEST_SKIP() << "this system does not say how large its page tables are";
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const int64_t taken = PageTablesOfThisProcess() - before;
  munmap(memory, kBytes);
  EXPECT_LE(taken, PageTableBytes(kBytes) + kEnds);
  EXPECT_GE(taken, PageTableBytes(kBytes) - kEnds);
}

TEST(PageTableBytes, GrowWithWhatIsMapped) {
  EXPECT_EQ(PageTableBytes(0), 0);
  EXPECT_EQ(PageTableBytes(int64_t{1} << 30), (int64_t{2} << 20) + 4096);
}

// 10 MiB in a process of 30 would be a quarter of the requirement.
TEST(ProcessGrowthBytes, IsLessWhereLittleIsHeld) {
  EXPECT_LE(ProcessGrowthBytes(0, 2), 30 * kMebibyte * 15 / 85);
  EXPECT_EQ(ProcessGrowthBytes(0, 64), ProcessGrowthBytes(0, 1));
  EXPECT_LT(ProcessGrowthBytes(kMebibyte, 2), ProcessGrowthBytes(100 * kMebibyte, 2));
}

TEST(ProcessGrowthBytes, IsBoundedByTheNumberOfThreads) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  EXPECT_EQ(ProcessGrowthBytes(kGibibyte, 1), kProcessGrowthBytes);
  EXPECT_EQ(ProcessGrowthBytes(kGibibyte, 2), kProcessGrowthBytes);
  EXPECT_EQ(ProcessGrowthBytes(kGibibyte, 6), kProcessGrowthBytes + 4 * kThreadGrowthBytes);
  EXPECT_EQ(ProcessGrowthBytes(kGibibyte << 20, 64), kProcessGrowthBytes + 62 * kThreadGrowthBytes);
}

// What messages hold is a multiple of them, up to what gRPC ever held; large ones count themselves.
TEST(ConnectionBytes, GrowWithTheMessages) {
  constexpr int64_t kLimit = 64 * kMebibyte;
  EXPECT_EQ(ConnectionBytes(0, kLimit), kIdleConnectionBytes);
  EXPECT_LE(ConnectionBytes(4096, kLimit), kMebibyte / 2);
  EXPECT_EQ(ConnectionBytes(kMebibyte, kLimit), kConnectionBytes + 2 * kMebibyte);
  EXPECT_EQ(ConnectionBytes(2 * kLimit, kLimit), kConnectionBytes + kLimit + kWindowBytes);
}

TEST(CheckFits, TakesWhatIsWithinTheLimitAndWhatHasNone) {
  EXPECT_TRUE(CheckFits("worker:0", Example(), {Example().total(), "the cluster spec"}).ok());
  EXPECT_TRUE(CheckFits("worker:0", Example(), {0, ""}).ok());
}

TEST(CheckFits, RefusesNamingWorkerNeedLimitAndWhatToDo) {
  const absl::Status status =
      CheckFits("worker:3", Example(), {Example().total() - 1, "the cluster spec"});
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              ::testing::StartsWith("worker:3 may have 412 MiB of memory (the cluster spec) and "
                                    "needs 412 MiB: variables 300 MiB, arena 80.5 MiB, process 24 "
                                    "MiB, transport 8 MiB; the job was refused before its first "
                                    "step: give it more workers"));
}

// 300 + 80.5 MiB lie on the device, the process and messages on the host, and constants on both,
// each side with its own.
TEST(MemoryRequirement, OfADeviceIsCountedWhereItLies) {
  MemoryRequirement requirement = Example();
  requirement.constant_bytes = 2 * kMebibyte;
  requirement.device_constant_bytes = 3 * kMebibyte;
  EXPECT_EQ(requirement.device_total(), 0);
  const int64_t all = requirement.total();
  requirement.on_device = true;
  EXPECT_EQ(requirement.total(), (24 + 8 + 2) * kMebibyte);
  EXPECT_EQ(requirement.device_total(), 383 * kMebibyte + kMebibyte / 2);
  EXPECT_EQ(requirement.total() + requirement.device_total(), all + 3 * kMebibyte);
  EXPECT_EQ(DescribeMemory(requirement),
            "34 MiB: process 24 MiB, transport 8 MiB, constants 2 MiB");
  EXPECT_EQ(DescribeDeviceMemory(requirement),
            "384 MiB: variables 300 MiB, arena 80.5 MiB, constants 3 MiB");
}

// Programs allocate 380.5 MiB of it; NCCL's 192 MiB are no part of their peak.
TEST(MemoryRequirement, WhatNcclTakesIsOfTheDevice) {
  MemoryRequirement requirement = Example();
  requirement.nccl_bytes = 192 * kMebibyte;
  EXPECT_EQ(requirement.total(), Example().total());
  EXPECT_EQ(requirement.device_total(), 0);
  requirement.on_device = true;
  EXPECT_EQ(requirement.device_allocated(), 380 * kMebibyte + kMebibyte / 2);
  EXPECT_EQ(requirement.device_total(), requirement.device_allocated() + 192 * kMebibyte);
  EXPECT_EQ(DescribeDeviceMemory(requirement),
            "572 MiB: variables 300 MiB, NCCL 192 MiB, arena 80.5 MiB");
}

TEST(CheckFitsOnDevice, RefusesNamingTheDevice) {
  MemoryRequirement requirement = Example();
  const MemoryLimit card = {380 * kMebibyte, "what is free of it"};
  EXPECT_TRUE(CheckFitsOnDevice("worker:3", "cpu:0", requirement, card).ok());
  requirement.on_device = true;
  const MemoryLimit enough = {requirement.device_total(), card.source};
  EXPECT_TRUE(CheckFitsOnDevice("worker:3", "cuda:1", requirement, enough).ok());
  EXPECT_TRUE(CheckFitsOnDevice("worker:3", "cuda:1", requirement, {0, ""}).ok());
  const absl::Status status = CheckFitsOnDevice("worker:3", "cuda:1", requirement, card);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::StartsWith("worker:3 may have 380 MiB of the memory of cuda:1 (what is free "
                            "of it) and needs "));
  // The host of such a worker has room for what lies on the host alone.
  EXPECT_TRUE(CheckFits("worker:3", requirement, {32 * kMebibyte, "the test"}).ok());
}

TEST(CheckFitTogether, AddsUpThoseThatShareALimit) {
  const MemoryLimit machine = {800 * kMebibyte, "this machine's memory"};
  const MemoryLimit own = {500 * kMebibyte, "control group /jobs/1"};
  EXPECT_TRUE(
      CheckFitTogether("local", {{"worker:0", machine, Example()}, {"worker:1", own, Example()}})
          .ok());
  const absl::Status status = CheckFitTogether(
      "local", {{"worker:0", machine, Example()}, {"worker:1", machine, Example()}});
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              ::testing::StartsWith("the 2 workers of host 'local' may have 800 MiB of memory "
                                    "together (this machine's memory) and need 825 MiB: worker:0 "
                                    "needs 412 MiB: variables 300 MiB"));
}

}  // namespace
}  // namespace weft
