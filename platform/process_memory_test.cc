#include "platform/process_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "platform/cpu_info.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

// The files in which the kernel speaks of memory.
class Kernel {
 public:
  Kernel& File(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files_.CreateDirectories(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(files_.WriteFileAtomically(path, text).ok());
    return *this;
  }
  Kernel& Status() {
    return File("/proc/self/status", "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
  }
  ProcessMemory Measure() { return MeasureProcessMemory(files_); }
  MemoryLimit Limit() { return ProcessMemoryLimit(files_); }

 private:
  testing::FakeFileSystem files_;
};

constexpr char kVersion1Groups[] = "5:cpu,cpuacct:/\n4:memory:/jobs/7\n0::/\n";
constexpr char kVersion2Groups[] = "0::/jobs/7\n";

TEST(ProcessMemory, IsTheResidentSizeWithoutAControlGroup) {
  const ProcessMemory memory = Kernel().Status().Measure();
  EXPECT_EQ(memory.bytes, 1 << 20);
  EXPECT_EQ(memory.peak_bytes, 2 << 20);
  EXPECT_FALSE(memory.of_control_group);
}

TEST(ProcessMemory, IsWhatItsOwnControlGroupIsCharged) {
  Kernel version1;
  version1.Status()
      .File("/proc/self/cgroup", kVersion1Groups)
      .File("/sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "5000\n")
      .File("/sys/fs/cgroup/memory/jobs/7/memory.max_usage_in_bytes", "7000\n")
      .File("/sys/fs/cgroup/memory/jobs/7/cgroup.procs", absl::StrCat(getpid(), "\n"));
  EXPECT_EQ(version1.Measure().bytes, 5000);
  EXPECT_EQ(version1.Measure().peak_bytes, 7000);
  EXPECT_TRUE(version1.Measure().of_control_group);

  Kernel version2;
  version2.Status()
      .File("/proc/self/cgroup", kVersion2Groups)
      .File("/sys/fs/cgroup/jobs/7/memory.current", "600\n")
      .File("/sys/fs/cgroup/jobs/7/memory.peak", "800\n")
      .File("/sys/fs/cgroup/jobs/7/cgroup.procs", absl::StrCat(getpid(), "\n"));
  EXPECT_EQ(version2.Measure().bytes, 600);
  EXPECT_EQ(version2.Measure().peak_bytes, 800);
}

TEST(ProcessMemory, IsItsOwnWhereOthersShareTheControlGroup) {
  Kernel kernel;
  kernel.Status()
      .File("/proc/self/cgroup", kVersion2Groups)
      .File("/sys/fs/cgroup/jobs/7/memory.current", "600\n")
      .File("/sys/fs/cgroup/jobs/7/memory.peak", "800\n")
      .File("/sys/fs/cgroup/jobs/7/cgroup.procs", absl::StrCat(getpid(), "\n1\n"));
  EXPECT_EQ(kernel.Measure().bytes, 1 << 20);
}

TEST(ProcessMemory, OfThisProcessIsKnown) {
  const ProcessMemory memory = MeasureProcessMemory(RealFileSystem());
  EXPECT_GT(memory.bytes, 100 << 10);
  EXPECT_GE(memory.peak_bytes, memory.bytes);
}

TEST(ProcessMemory, PeakBeginsAnewWhenItIsForgotten) {
  constexpr size_t kBytes = size_t{64} << 20;
  // Of the system: a sanitizer's allocator keeps what is freed.
  void* const large =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(large, MAP_FAILED);
  std::memset(large, 1, kBytes);
  munmap(large, kBytes);
  const ProcessMemory before = MeasureProcessMemory(RealFileSystem());
  if (before.of_control_group) GTEST_SKIP() << "a control group keeps its peak";
  ForgetPeakMemory();
  const ProcessMemory after = MeasureProcessMemory(RealFileSystem());
  EXPECT_LT(after.peak_bytes, before.peak_bytes - static_cast<int64_t>(kBytes / 2));
}

TEST(MemoryLimit, IsTheMachinesMemoryWhereNoControlGroupSaysLess) {
  EXPECT_EQ(Kernel().Limit().bytes, PhysicalMemoryBytes());
  Kernel unlimited;
  unlimited.File("/proc/self/cgroup", kVersion1Groups)
      .File("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(unlimited.Limit().bytes, PhysicalMemoryBytes());
  EXPECT_EQ(unlimited.Limit().source, "this machine's memory");
}

TEST(MemoryLimit, IsTheLeastOfTheControlGroupAndThoseAboveIt) {
  Kernel version1;
  version1.File("/proc/self/cgroup", kVersion1Groups)
      .File("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "2000000\n")
      .File("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1000000\n");
  EXPECT_EQ(version1.Limit().bytes, 1000000);
  EXPECT_EQ(version1.Limit().source, "control group /sys/fs/cgroup/memory/jobs");

  Kernel version2;
  version2.File("/proc/self/cgroup", kVersion2Groups)
      .File("/sys/fs/cgroup/jobs/7/memory.max", "3000000\n")
      .File("/sys/fs/cgroup/jobs/memory.max", "max\n");
  EXPECT_EQ(version2.Limit().bytes, 3000000);
  EXPECT_EQ(version2.Limit().source, "control group /sys/fs/cgroup/jobs/7");
}

}  // namespace
}  // namespace weft
