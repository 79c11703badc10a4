#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cuda/indexing/weighted_sums_launch.h"
#include "ops/testing/emulator/body_runner.h"

namespace weft::testing {
namespace {

// Random keys, of which some name nothing, against plain loops. Numbers are small whole ones: sums
// are exact in any order.
template <typename W>
void CheckWeightedSums(const cuda::WeightedSums& sums, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&] { return static_cast<double>(random() % 9) - 4; };
  const auto terms = static_cast<size_t>(sums.terms());
  std::vector<uint32_t> keys(terms);
  std::vector<W> weights(terms);
  std::vector<float> x(static_cast<size_t>(sums.groups * sums.channels * sums.sources));
  std::vector<float> expected(static_cast<size_t>(sums.groups * sums.channels * sums.elements), 0);
  for (float& value : x) value = static_cast<float>(number());
  for (int64_t t = 0; t < sums.terms(); ++t) {
    const int64_t source = t / sums.parts % sums.sources;
    const int64_t group = t / sums.parts / sums.sources;
    const auto element = static_cast<int64_t>(random() % static_cast<uint64_t>(sums.elements + 1));
    const bool is_none = element == sums.elements;
    weights[t] = static_cast<W>(number());
    keys[t] = is_none ? sums.NoKey() : static_cast<uint32_t>(group * sums.elements + element);
    for (int64_t c = 0; c < sums.channels && !is_none; ++c) {
      const int64_t line = group * sums.channels + c;
      expected[line * sums.elements + element] +=
          static_cast<float>(weights[t]) * x[line * sums.sources + source];
    }
  }

  BodyRunner runner(seed);
  Stream& stream = runner.stream();
  float* const from = runner.Memory<float>(x.size());
  float* const to = runner.Memory<float>(expected.size());
  void* const workspace = runner.Memory<uint64_t>(sums.workspace_bytes() / 8 + 1);
  Device& device = runner.device();
  ASSERT_TRUE(device.CopyFromHost(stream, x.data(), from, x.size() * 4).ok());
  if (terms > 0) {
    ASSERT_TRUE(device.CopyFromHost(stream, keys.data(), sums.Keys(workspace), terms * 4).ok());
    ASSERT_TRUE(
        device.CopyFromHost(stream, weights.data(), sums.Weights(workspace), terms * sizeof(W))
            .ok());
  }
  ASSERT_EQ(sums.Launch({stream.native_handle()}, {from, DType::kFloat32}, {to, DType::kFloat32},
                        workspace),
            0);
  const absl::Status status = runner.Finish();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(runner.Read(to, expected.size()), expected);
}

TEST(WeightedSumsTest, AgreesWithPlainLoops) {
  CheckWeightedSums<float>({2, 3, 11, 4, 7, false}, 1);
  CheckWeightedSums<double>({3, 1, 5, 1, 13, true}, 2);
  CheckWeightedSums<float>({1, 2, 0, 4, 7, false}, 3);
}

// More terms than are ranked pair by pair, of elements that have hundreds each.
TEST(WeightedSumsTest, ManyTermsOfFewElements) {
  CheckWeightedSums<float>({2, 1, cuda::kRankedKeys / 3, 2, 29, false}, 4);
}

}  // namespace
}  // namespace weft::testing
