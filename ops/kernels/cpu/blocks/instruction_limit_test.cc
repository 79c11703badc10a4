// The binary also runs with DNNL_MAX_CPU_ISA=AVX2 (see BUILD.bazel): then kernels are those of
// AVX2, whatever the processor has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/blocks/instruction_limit_test.cc"
#include "hwy/foreach_target.h"
// Highway's headers come after.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

// What a kernel of ours is compiled for.
int64_t Target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "platform/cpu_info.h"

namespace weft {
HWY_EXPORT(Target);
namespace {

int64_t ChosenTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

TEST(InstructionLimitTest, HighwayUsesTheLevelOfOneDnn) {
  const InstructionSet level = EffectiveInstructionSet();
  if (level >= InstructionSet::kAvx512Core) {
    EXPECT_LT(ChosenTarget(), HWY_AVX2);  // better targets have lower numbers
  } else if (level >= InstructionSet::kAvx2) {
    EXPECT_EQ(ChosenTarget(), HWY_AVX2);
  } else {
    EXPECT_GE(ChosenTarget(), HWY_SSE4);
  }
}

TEST(InstructionLimitTest, TheLimitToAvx2HoldsForAllKernels) {
  const char* const limit = std::getenv("DNNL_MAX_CPU_ISA");
  const bool is_limited = limit != nullptr && std::string(limit) == "AVX2";
  if (!is_limited || !__builtin_cpu_supports("avx2")) return;  // the other run of this binary
  EXPECT_EQ(EffectiveInstructionSet(), InstructionSet::kAvx2);
  EXPECT_EQ(dnnl::get_effective_cpu_isa(), dnnl::cpu_isa::avx2);
  EXPECT_EQ(ChosenTarget(), HWY_AVX2);
}

// That there is a limit at all shows on a processor with AVX2 alone, too: a lower one holds.
TEST(InstructionLimitTest, ALowerLimitHoldsInAProcessOfItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // starts the program anew
  const char* const before = std::getenv("DNNL_MAX_CPU_ISA");
  const std::string old = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("DNNL_MAX_CPU_ISA", "SSE41", /*overwrite=*/1), 0);
  EXPECT_EXIT(
      std::exit(ChosenTarget() >= HWY_SSE4 && dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::sse41
                    ? 0
                    : 1),
      ::testing::ExitedWithCode(0), "");
  if (before == nullptr) {
    unsetenv("DNNL_MAX_CPU_ISA");
  } else {
    setenv("DNNL_MAX_CPU_ISA", old.c_str(), /*overwrite=*/1);
  }
}

}  // namespace
}  // namespace weft
#endif  // HWY_ONCE
