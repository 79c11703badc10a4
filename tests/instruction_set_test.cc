// platform/cpu_info names the instruction set that oneDNN uses without knowing oneDNN: here they
// are held together.

#include <cstdlib>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "platform/cpu_info.h"

namespace weft {
namespace {

std::string EffectiveNameOfOneDnn() {
  static const auto* const names = new std::map<dnnl::cpu_isa, std::string>{
      {dnnl::cpu_isa::sse41, "SSE41"},
      {dnnl::cpu_isa::avx, "AVX"},
      {dnnl::cpu_isa::avx2, "AVX2"},
      {dnnl::cpu_isa::avx2_vnni, "AVX2_VNNI"},
      {dnnl::cpu_isa::avx512_core, "AVX512_CORE"},
      {dnnl::cpu_isa::avx512_core_vnni, "AVX512_CORE_VNNI"},
      {dnnl::cpu_isa::avx512_core_bf16, "AVX512_CORE_BF16"},
      {dnnl::cpu_isa::avx512_core_amx, "AVX512_CORE_AMX"},
  };
  const auto name = names->find(dnnl::get_effective_cpu_isa());
  return name == names->end() ? "unknown" : name->second;
}

TEST(InstructionSetTest, IsWhatOneDnnUses) {
  EXPECT_EQ(InstructionSetName(EffectiveInstructionSet()), EffectiveNameOfOneDnn());
}

// oneDNN reads its environment once per process, so each level needs a process of its own.
void ExpectAgreement(const std::map<std::string, std::string>& environment) {
  EXPECT_EXIT(
      {
        for (const auto& [name, value] : environment) {
          setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
        }
        std::exit(InstructionSetName(EffectiveInstructionSet()) == EffectiveNameOfOneDnn() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "")
      << ::testing::PrintToString(environment);
}

TEST(InstructionSetTest, IsWhatOneDnnUsesUnderALimit) {
  for (const char* level : {"SSE41", "AVX", "AVX2", "AVX512_CORE", "avx2", "ALL"}) {
    ExpectAgreement({{"DNNL_MAX_CPU_ISA", level}});
  }
}

// Under its newer name the limit held for oneDNN, and the handshake told a higher level.
TEST(InstructionSetTest, IsWhatOneDnnUsesUnderALimitByItsNewerName) {
  ExpectAgreement({{"ONEDNN_MAX_CPU_ISA", "SSE41"}});
  ExpectAgreement({{"ONEDNN_MAX_CPU_ISA", "AVX2"}, {"DNNL_MAX_CPU_ISA", "SSE41"}});
  ExpectAgreement({{"ONEDNN_MAX_CPU_ISA", ""}, {"DNNL_MAX_CPU_ISA", "SSE41"}});
  ExpectAgreement({{"ONEDNN_MAX_CPU_ISA", "nonsense"}, {"DNNL_MAX_CPU_ISA", "SSE41"}});
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  return RUN_ALL_TESTS();
}
