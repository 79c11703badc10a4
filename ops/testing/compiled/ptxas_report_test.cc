#include "ops/testing/compiled/ptxas_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What nvcc 13.0 printed of a kernel that fits, and of one that was given too few registers.
constexpr char kRecorded[] = R"(ptxas info    : 296 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_ZN4weft4cuda7RunBodyILi256ENS0_7ScratchEEEvT0_' for 'sm_80'
ptxas info    : Function properties for _ZN4weft4cuda7RunBodyILi256ENS0_7ScratchEEEvT0_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 1 barriers, 128 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for __internal_trig_reduction_slowpathd
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : 296 bytes gmem
ptxas info    : Compiling entry function '_Z7RunBodyILi1024EfEvPKT0_PS0_i' for 'sm_90a'
ptxas info    : Function properties for _Z7RunBodyILi1024EfEvPKT0_PS0_i
    1280 bytes stack frame, 1204 bytes spill stores, 2520 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1296 bytes cumulative stack size, 400 bytes smem
)";

TEST(ReadPtxasReport, GivesWhatIsRecordedOfEachKernel) {
  const auto kernels = ReadPtxasReport(kRecorded);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  ASSERT_EQ(kernels->size(), 2u);
  const CompiledKernel& first = kernels->front();
  EXPECT_EQ(first.name, "Scratch");
  EXPECT_EQ(first.architecture, 80);
  EXPECT_EQ(first.max_threads, 256);
  EXPECT_EQ(first.registers, 18);
  EXPECT_EQ(first.shared_bytes, 128);
  EXPECT_EQ(first.stack_bytes, 40);  // of the function that it calls
  EXPECT_EQ(first.spill_bytes, 0);
  const CompiledKernel& second = kernels->back();
  EXPECT_EQ(second.name, "void RunBody<1024, float>(float const*, float*, int)");
  EXPECT_EQ(second.architecture, 90);
  EXPECT_EQ(second.max_threads, 0);  // none of ours
  EXPECT_EQ(second.registers, 32);
  EXPECT_EQ(second.shared_bytes, 400);
  EXPECT_EQ(second.stack_bytes, 1296);
  EXPECT_EQ(second.spill_bytes, 1204 + 2520);
}

TEST(ReadPtxasReport, NamesABodyWithItsParameters) {
  const auto kernels = ReadPtxasReport(
      "ptxas info    : Compiling entry function "
      "'_ZN4weft4cuda7RunBodyILi512ENS0_3AddIfLi4ENS_7Float16EEEEEvT0_' for 'sm_90'\n"
      "ptxas info    : Used 40 registers, used 0 barriers\n");
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  ASSERT_EQ(kernels->size(), 1u);
  EXPECT_EQ(kernels->front().name, "Add<float, 4, Float16>");
  EXPECT_EQ(kernels->front().max_threads, 512);
  EXPECT_EQ(kernels->front().shared_bytes, 0);
}

TEST(ReadPtxasReport, AReportWithoutKernelsIsEmpty) {
  const auto kernels = ReadPtxasReport("ptxas info    : 0 bytes gmem\n");
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_THAT(*kernels, IsEmpty());
}

// A new form must not pass for a kernel without spills.
TEST(ReadPtxasReport, RefusesOtherForms) {
  const auto message = [](const std::string& text) {
    const auto kernels = ReadPtxasReport(text);
    return kernels.ok() ? "" : std::string(kernels.status().message());
  };
  const std::string entry = "ptxas info    : Compiling entry function 'F' for 'sm_80'\n";
  const std::string used = "ptxas info    : Used 18 registers\n";
  EXPECT_EQ(message(entry + used), "");
  EXPECT_THAT(message(used), HasSubstr("line 1 of the report of ptxas: no kernel was named"));
  EXPECT_THAT(message("\nCompiling entry function F\n"), HasSubstr("line 2 of the report"));
  EXPECT_THAT(message("Compiling entry function 'F' for 'gfx90'\n"), HasSubstr("sm_NUMBER"));
  EXPECT_THAT(message(entry), HasSubstr("no registers are given of F"));
  EXPECT_THAT(message(entry + entry + used), HasSubstr("no registers are given of F"));
  EXPECT_THAT(message(entry + "    0 bytes stack frame\n" + used), HasSubstr("spill stores"));
  EXPECT_THAT(message(entry + "ptxas info    : Used few registers\n"),
              HasSubstr("expected registers"));
}

const Multiprocessor& OfCapability(int major, int minor) {
  for (const Multiprocessor& multiprocessor : Multiprocessors()) {
    if (multiprocessor.major == major && multiprocessor.minor == minor) return multiprocessor;
  }
  ADD_FAILURE() << "no GPU of " << major << "." << minor;
  return Multiprocessors().front();
}

// By hand: 65,536 registers, 2,048 threads.
TEST(ResidentBlocks, IsWhatIsShortFirst) {
  const Multiprocessor& a100 = OfCapability(8, 0);
  EXPECT_EQ(ResidentBlocks(a100, 256, 32, 0), 8);  // 2,048 threads of 32 registers fit exactly
  EXPECT_EQ(ResidentBlocks(a100, 256, 33, 0), 6);  // 40 registers are given out: 12 warps a part
  EXPECT_EQ(ResidentBlocks(a100, 256, 64, 0), 4);
  EXPECT_EQ(ResidentBlocks(a100, 32, 16, 0), 32);  // blocks
  EXPECT_EQ(ResidentBlocks(a100, 1024, 64, 0), 1);
  EXPECT_EQ(ResidentBlocks(a100, 1024, 65, 0), 0);        // 1,024 threads of 72 do not fit
  EXPECT_EQ(ResidentBlocks(a100, 32, 256, 0), 0);         // no thread has more than 255
  EXPECT_EQ(ResidentBlocks(a100, 256, 32, 40 << 10), 4);  // 4 of 41 KiB in 164 KiB
  EXPECT_EQ(ResidentBlocks(a100, 256, 32, 163 << 10), 1);
  EXPECT_EQ(ResidentBlocks(a100, 256, 32, (163 << 10) + 1), 0);
  EXPECT_EQ(ResidentBlocks(OfCapability(9, 0), 256, 32, 227 << 10), 1);
}

TEST(Occupancy, IsOfTheThreadsThatAGpuHas) {
  EXPECT_DOUBLE_EQ(Occupancy(OfCapability(8, 0), 256, 32, 0), 1);
  EXPECT_DOUBLE_EQ(Occupancy(OfCapability(8, 0), 256, 33, 0), 0.75);
  // 1,536 threads: one block of 1,024 and no second.
  EXPECT_DOUBLE_EQ(Occupancy(OfCapability(8, 6), 1024, 32, 0), 1024.0 / 1536);
  EXPECT_DOUBLE_EQ(Occupancy(OfCapability(8, 9), 32, 32, 0), 0.5);  // 24 blocks of 48 warps
}

}  // namespace
}  // namespace weft::testing
