// The binary also runs with DNNL_MAX_CPU_ISA=AVX2 (see BUILD.bazel).
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "platform/cpu_info.h"

namespace weft {
namespace {

TEST(InstructionLimitTest, HighwayUsesNoMoreThanOneDnn) {
  const bool has_avx512 = (hwy::SupportedTargets() & (HWY_AVX2 - 1)) != 0;
  if (EffectiveInstructionSet() < InstructionSet::kAvx512Core) {
    EXPECT_FALSE(has_avx512);
  } else {
    EXPECT_TRUE(has_avx512);
  }
}

}  // namespace
}  // namespace weft
