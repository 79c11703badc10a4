#include "ops/kernels/cpu/blocks/onednn.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft::cpu {
namespace {

// Mappings of this process that hold code and belong to no file.
int GeneratedCodeMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    const size_t rights = line.find(' ') + 1;
    const bool is_code = line.size() > rights + 2 && line[rights + 2] == 'x';
    const bool is_file = line.find('/') != std::string::npos || line.find('[') != std::string::npos;
    if (is_code && !is_file) ++count;
  }
  return count;
}

// A product of each pair of layouts, and of sizes that use other parts of the code.
void RunProducts() {
  constexpr int64_t kSize = 300;
  const std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 2.0f);
  std::vector<float> c(kSize * kSize);
  for (const int64_t size : {int64_t{1}, int64_t{17}, kSize}) {
    for (const char trans_a : {'N', 'T'}) {
      for (const char trans_b : {'N', 'T'}) {
        ASSERT_EQ(dnnl_sgemm(trans_a, trans_b, size, size, size, 1.0f, a.data(), kSize, b.data(),
                             kSize, 0.0f, c.data(), kSize),
                  dnnl_success);
        EXPECT_EQ(c[0], static_cast<float>(size));
      }
    }
  }
}

// Jobs were measured before this code was there, and needed 7 MiB more than they had said.
TEST(MakeClassicProductCode, LeavesNoneToTheFirstProduct) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2) GTEST_SKIP() << "no code is generated";
  const int before = GeneratedCodeMappings();
  MakeClassicProductCode();
  const int made = GeneratedCodeMappings();
  EXPECT_GT(made, before);
  RunProducts();
  EXPECT_EQ(GeneratedCodeMappings(), made);
}

}  // namespace
}  // namespace weft::cpu
