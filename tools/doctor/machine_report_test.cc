#include "tools/doctor/machine_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "platform/testing/fake_file_system.h"
#include "tensor/testing/fake_cuda_runtime.h"
#include "tensor/testing/fake_library_opener.h"
#include "tools/doctor/machine_text.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

size_t Version130000() { return 130000; }
size_t Version91300() { return 91300; }
int Nccl22707(int* number) {
  *number = 22707;
  return 0;
}
int Nvrtc130(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

template <typename Function>
std::map<std::string, void*> Functions(const std::string& name, Function* function) {
  return {{name, reinterpret_cast<void*>(function)}};
}

class MachineReportTest : public ::testing::Test {
 protected:
  MachineReportTest() {
    File("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor @ 3 GHz\nflags\t: fpu\n");
    File("/proc/meminfo",
         "MemTotal:       16384 kB\nMemAvailable:    8192 kB\nHugePages_Total:       3\n");
    File("/proc/self/limits",
         "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max open files            20000                1048576              files     \n"
         "Max locked memory         unlimited            unlimited            bytes     \n");
    File("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    sources_.files = &files_;
    sources_.libraries = &libraries_;
    sources_.instruction_set = InstructionSet::kAvx512Core;
    sources_.cuda = absl::UnimplementedError("this build has no CUDA");
  }

  void File(const std::string& path, const std::string& text) {
    ASSERT_TRUE(files_.CreateDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(files_.WriteFileAtomically(path, text).ok());
  }
  void AddLibraries() {
    libraries_.Add("libcublasLt.so.13", Functions("cublasLtGetVersion", &Version130000),
                   "/cuda/libcublasLt.so.13");
    libraries_.Add("libcudnn.so.9", Functions("cudnnGetVersion", &Version91300));
    libraries_.Add("libnccl.so.2", Functions("ncclGetVersion", &Nccl22707));
    libraries_.Add("libnvrtc.so.13", Functions("nvrtcVersion", &Nvrtc130));
  }

  FakeFileSystem files_;
  FakeLibraryOpener libraries_;
  MachineSources sources_;
};

TEST_F(MachineReportTest, AMachineWithoutGpuIsWell) {
  const MachineReport report = ExamineMachine(sources_);
  EXPECT_FALSE(report.has_cuda);
  EXPECT_EQ(report.processor.model, "A Processor @ 3 GHz");
  EXPECT_EQ(report.processor.numa_nodes, 1);
  EXPECT_EQ(report.processor.instruction_set, "AVX512_CORE");
  EXPECT_EQ(report.memory.total, 16384 * 1024);
  EXPECT_EQ(report.memory.available, 8192 * 1024);
  EXPECT_EQ(report.memory.reserved_huge_pages, 3);
  EXPECT_EQ(report.memory.transparent_huge_pages, "madvise");
  EXPECT_EQ(report.limits.open_files, 20000);
  EXPECT_EQ(report.limits.locked_bytes, -1);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_TRUE(report.Has("cpu"));
  EXPECT_FALSE(report.Has("cuda"));
  EXPECT_THAT(MachineText(report), AllOf(HasSubstr("no CUDA"), HasSubstr("\ndriver     none\n"),
                                         HasSubstr("\nno problems\n")));
}

TEST_F(MachineReportTest, EachProblemOfTheMachineSaysWhatToDo) {
  File("/proc/self/limits", "Max open files            256                  4096          files\n");
  File("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  File("/proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:00:00 UTC 2025\n");
  sources_.instruction_set = InstructionSet::kAvx;
  const MachineReport report = ExamineMachine(sources_);
  EXPECT_THAT(report.problems,
              ElementsAre(AllOf(HasSubstr("580.65.06"), HasSubstr("--config=cuda")),
                          HasSubstr("AVX2"), HasSubstr("ulimit -n"), HasSubstr("madvise")));
  EXPECT_THAT(MachineText(report), HasSubstr("4 problems:\n  1. "));
}

TEST_F(MachineReportTest, CardsAreDescribed) {
  FakeCudaOptions options;
  options.cards = std::vector<FakeCudaCard>(2);
  options.cards[0].peers = {1};
  options.cards[0].used_by_others = size_t{256} << 20;
  options.cards[1].properties.major = 7;
  options.cards[1].properties.name = "Old GPU";
  FakeCudaRuntime runtime(options);
  sources_.cuda = &runtime;
  AddLibraries();
  File("/sys/devices/system/node/node0/cpulist", "0-1\n");
  File("/sys/devices/system/node/node1/cpulist", "2-3\n");
  const MachineReport report = ExamineMachine(sources_);
  EXPECT_EQ(report.driver.driver_cuda, "13.0");
  EXPECT_EQ(report.driver.runtime_cuda, "13.0");
  EXPECT_EQ(report.processor.numa_nodes, 2);
  ASSERT_EQ(report.cards.size(), 2u);
  EXPECT_EQ(report.cards[0].free_bytes, size_t{768} << 20);
  EXPECT_THAT(report.cards[0].reaches, ElementsAre("cuda:1"));
  EXPECT_EQ(report.cards[0].problem, "");
  EXPECT_THAT(report.problems,
              ElementsAre(AllOf(HasSubstr("cuda:1 (Old GPU)"), HasSubstr("8.0 and later"))));
  EXPECT_TRUE(report.Has("cuda"));
  EXPECT_TRUE(report.Has("cuda:0"));
  EXPECT_FALSE(report.Has("cuda:1"));
  // 2 GHz, 2 transfers, 512 bytes: 2048 GB/s.
  EXPECT_THAT(MachineText(report),
              AllOf(HasSubstr("cuda:0  Fake GPU, compute capability 9.0, 4 multiprocessors at "
                              "1.50 GHz, 2048 GB/s, 768 MiB of 1 GiB free, PCI 0000:01:00.0, "
                              "reaches cuda:1"),
                    HasSubstr("CUDA 13.0 for compute capability 8.0 and later, "),
                    HasSubstr("cuBLASLt 13.0.0  /cuda/libcublasLt.so.13"),
                    HasSubstr("cannot be used"), HasSubstr("1 problem:")));
}

TEST_F(MachineReportTest, AMissingLibraryIsAProblemWhereThereIsACard) {
  FakeCudaRuntime with_card;
  sources_.cuda = &with_card;
  EXPECT_THAT(ExamineMachine(sources_).problems,
              ElementsAre(HasSubstr("cuBLASLt"), HasSubstr("cuDNN"), HasSubstr("NCCL"),
                          HasSubstr("NVRTC")));
  FakeCudaRuntime without_driver({.driver_version = 0});
  sources_.cuda = &without_driver;
  const MachineReport report = ExamineMachine(sources_);
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("no NVIDIA driver")));
  EXPECT_EQ(report.libraries.size(), 4u);
  EXPECT_FALSE(report.Has("cuda"));
}

TEST_F(MachineReportTest, HiddenCardsAreExplained) {
  FakeCudaRuntime runtime({.cards = {}});
  sources_.cuda = &runtime;
  libraries_.SetEnvironment("CUDA_VISIBLE_DEVICES", "-1");
  EXPECT_THAT(ExamineMachine(sources_).problems,
              ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES is '-1'")));
}

TEST_F(MachineReportTest, ProgramsReadTheSame) {
  FakeCudaRuntime runtime;
  sources_.cuda = &runtime;
  AddLibraries();
  const auto json = nlohmann::json::parse(MachineJson(ExamineMachine(sources_)));
  EXPECT_EQ(json["cuda"], true);
  EXPECT_EQ(json["devices"][0]["device"], "cpu:0");
  EXPECT_EQ(json["devices"][1]["device"], "cuda:0");
  EXPECT_EQ(json["devices"][1]["free_bytes"], 1 << 30);
  EXPECT_EQ(json["devices"][1]["memory_bytes_per_second"], 2.048e12);
  EXPECT_EQ(json["libraries"][2]["version"], "2.27.7");
  EXPECT_EQ(json["memory"]["total_bytes"], 16384 * 1024);
  EXPECT_EQ(json["limits"]["open_files"], 20000);
  EXPECT_TRUE(json["kernels"].contains("cuda"));
  EXPECT_THAT(json["problems"], IsEmpty());
}

// A machine of another kind, where nothing is known, is no reason to fail.
TEST_F(MachineReportTest, WhatIsNotKnownIsLeftOpen) {
  FakeFileSystem empty;
  sources_.files = &empty;
  const MachineReport report = ExamineMachine(sources_);
  EXPECT_EQ(report.limits.open_files, -1);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(MachineText(report), AllOf(HasSubstr("processor  unknown"), Not(HasSubstr("-1"))));
}

}  // namespace
}  // namespace weft::testing
