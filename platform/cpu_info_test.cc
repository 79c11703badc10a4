#include "platform/cpu_info.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

const std::vector<InstructionSet> kServer = {InstructionSet::kSse41, InstructionSet::kAvx,
                                             InstructionSet::kAvx2, InstructionSet::kAvx512Core,
                                             InstructionSet::kAvx512CoreVnni};

// A control group as the kernel shows it.
class ControlGroup {
 public:
  ControlGroup& File(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files_.CreateDirectories(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(files_.WriteFileAtomically(path, text).ok());
    return *this;
  }
  int Cores() { return AvailableCores(files_); }

 private:
  testing::FakeFileSystem files_;
};

TEST(InstructionSet, NamesAreThoseOfOneDnn) {
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx2), "AVX2");
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx512CoreBf16), "AVX512_CORE_BF16");
}

TEST(InstructionSet, IsLimitedByTheEnvironmentsText) {
  EXPECT_EQ(LimitInstructionSet(kServer, "AVX2"), InstructionSet::kAvx2);
  EXPECT_EQ(LimitInstructionSet(kServer, "avx512_core"), InstructionSet::kAvx512Core);
  EXPECT_EQ(LimitInstructionSet(kServer, "SSE41"), InstructionSet::kSse41);
}

TEST(InstructionSet, IsNotLimitedByAnUnknownTextOrAHigherLevel) {
  EXPECT_EQ(LimitInstructionSet(kServer, ""), InstructionSet::kAvx512CoreVnni);
  EXPECT_EQ(LimitInstructionSet(kServer, "ALL"), InstructionSet::kAvx512CoreVnni);
  EXPECT_EQ(LimitInstructionSet(kServer, "AVX1024"), InstructionSet::kAvx512CoreVnni);
  EXPECT_EQ(LimitInstructionSet({InstructionSet::kSse41}, "AVX2"), InstructionSet::kSse41);
}

TEST(InstructionSet, OfThisProcessFollowsItsEnvironment) {
  ASSERT_EQ(setenv("DNNL_MAX_CPU_ISA", "SSE41", /*overwrite=*/1), 0);
  EXPECT_EQ(EffectiveInstructionSet(), InstructionSet::kSse41);
  ASSERT_EQ(setenv("ONEDNN_MAX_CPU_ISA", "AVX", /*overwrite=*/1), 0);
  EXPECT_EQ(EffectiveInstructionSet(), InstructionSet::kAvx);
  ASSERT_EQ(unsetenv("DNNL_MAX_CPU_ISA"), 0);
  ASSERT_EQ(unsetenv("ONEDNN_MAX_CPU_ISA"), 0);
}

TEST(AvailableCores, AreAtLeastOneAndAtMostTheMachines) { EXPECT_GE(ControlGroup().Cores(), 1); }

TEST(AvailableCores, AreCutToTheQuotaOfControlGroupVersion2) {
  EXPECT_EQ(ControlGroup().File("/sys/fs/cgroup/cpu.max", "50000 100000\n").Cores(), 1);
  EXPECT_EQ(ControlGroup().File("/sys/fs/cgroup/cpu.max", "max 100000\n").Cores(),
            ControlGroup().Cores());
}

TEST(AvailableCores, AreCutToTheQuotaOfControlGroupVersion1) {
  EXPECT_EQ(ControlGroup()
                .File("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n")
                .File("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
                .Cores(),
            1);
  EXPECT_EQ(ControlGroup()
                .File("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
                .File("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
                .Cores(),
            ControlGroup().Cores());
}

TEST(AvailableCores, IgnoreAQuotaThatMakesNoSense) {
  for (const char* text : {"", "0 100000", "5 0", "a b", "1"}) {
    EXPECT_EQ(ControlGroup().File("/sys/fs/cgroup/cpu.max", text).Cores(), ControlGroup().Cores())
        << text;
  }
}

TEST(ThreadBudget, SharesTheCoresAndIsNeverZero) {
  EXPECT_EQ(ThreadBudget(8, 2), 4);
  EXPECT_EQ(ThreadBudget(8, 3), 2);
  EXPECT_EQ(ThreadBudget(2, 4), 1);
  EXPECT_EQ(ThreadBudget(4, 0), 4);
}

TEST(PhysicalMemory, IsPlausible) { EXPECT_GT(PhysicalMemoryBytes(), int64_t{1} << 26); }

}  // namespace
}  // namespace weft
