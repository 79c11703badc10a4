#include "platform/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

using Counter = std::array<uint32_t, 4>;

// The known answers that its authors ship with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, DependsOnSeedNameAndFold) {
  const std::vector<RandomKey> keys = {RandomKey(0, ""),
                                       RandomKey(1, ""),
                                       RandomKey(0, "shuffle"),
                                       RandomKey(0, "shufflf"),
                                       RandomKey(0, "a longer name"),
                                       RandomKey(0, "a longer name2"),
                                       RandomKey(0, std::string(1, '\0')),
                                       RandomKey(0, "shuffle").Fold(0),
                                       RandomKey(0, "shuffle").Fold(1),
                                       RandomKey(0, "shuffle").Fold(uint64_t{1} << 32),
                                       RandomKey(0, "shuffle").Fold(0).Fold(1),
                                       RandomKey(0, "shuffle").Fold(1).Fold(0)};
  std::set<Counter> blocks;
  for (const RandomKey& key : keys) {
    blocks.insert(key.Block(0));
    blocks.insert(key.Block(1));
    blocks.insert(key.Block(uint64_t{1} << 32));
  }
  EXPECT_EQ(blocks.size(), 3 * keys.size());
}

// Weights and sample order of released versions depend on these numbers: they must never change.
TEST(RandomKey, KeepsItsNumbersForEver) {
  const RandomKey key = RandomKey(42, "shuffle").Fold(3);
  EXPECT_EQ(key, RandomKey(42, "shuffle").Fold(3));
  EXPECT_EQ(Permutation(key, 8), (std::vector<int64_t>{3, 2, 7, 1, 6, 0, 4, 5}));
  std::array<float, 2> values = {};
  FillNormal(key, 0, 0, 1, values);
  EXPECT_EQ(values[0], 0x1.0b0526p-1f);
  EXPECT_EQ(values[1], 0x1.5bf266p-2f);
}

TEST(FillUniform, GivesElementsByIndexWhateverTheSplit) {
  const RandomKey key(7, "split");
  std::vector<float> whole(101);
  FillUniform(key, 0, -1, 1, whole);
  for (size_t first : {0u, 1u, 2u, 3u, 4u, 50u}) {
    std::vector<float> part(whole.size() - first);
    FillUniform(key, first, -1, 1, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
}

TEST(FillUniform, StaysInsideAndFillsTheInterval) {
  std::vector<float> values(1 << 16);
  FillUniform(RandomKey(7, "uniform"), 0, 2, 3, values);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, 2.0f);
  EXPECT_LT(*high, 3.0f);
  // Mean of 65,536 uniform numbers: standard error 0.2887 / 256 = 0.00113; five of them.
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / values.size();
  EXPECT_NEAR(mean, 2.5, 0.0057);
}

TEST(FillUniform, NeverReachesTheUpperEndByRounding) {
  const float high = std::nextafterf(1.0f, 2.0f);
  std::vector<float> values(1000);
  FillUniform(RandomKey(7, "narrow"), 0, 1.0f, high, values);
  for (const float value : values) EXPECT_EQ(value, 1.0f);
}

TEST(NormalQuantile, InvertsTheDistributionFunction) {
  for (double z = -8; z <= 8; z += 0.125) {
    // Both tails by the small side, where erfc is accurate.
    const double probability = std::erfc(std::abs(z) / std::sqrt(2.0)) / 2;
    EXPECT_NEAR(NormalQuantile(probability), -std::abs(z), 4e-15 * (1 + std::abs(z))) << z;
  }
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  EXPECT_EQ(NormalQuantile(0.75), -NormalQuantile(0.25));
}

TEST(FillNormal, HasTheMomentsOfTheDistribution) {
  constexpr int kCount = 1 << 16;
  std::vector<float> values(kCount);
  FillNormal(RandomKey(7, "normal"), 0, 1, 2, values);
  double mean = 0;
  for (const float value : values) mean += value / double{kCount};
  double variance = 0, fourth = 0;
  for (const float value : values) {
    const double square = (value - mean) * (value - mean);
    variance += square / kCount;
    fourth += square * square / kCount;
  }
  // Five standard errors: 2 / 256; 4 sqrt(2) / 256; 16 sqrt(96) / 256.
  EXPECT_NEAR(mean, 1, 0.039);
  EXPECT_NEAR(variance, 4, 0.11);
  EXPECT_NEAR(fourth, 48, 3.1);
}

TEST(FillNormal, GivesElementsByIndexWhateverTheSplit) {
  const RandomKey key(7, "split");
  std::vector<float> whole(11), part(10);
  FillNormal(key, 0, 0, 1, whole);
  FillNormal(key, 1, 0, 1, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1));
}

TEST(RandomSequence, BelowIsUniform) {
  constexpr uint64_t kBound = 10;
  constexpr int kDraws = 100000;
  std::array<int, kBound> counts = {};
  RandomSequence sequence(RandomKey(7, "below"));
  for (int i = 0; i < kDraws; ++i) ++counts[sequence.Below(kBound)];
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - 1e4, 2) / 1e4;
  EXPECT_LT(chi_square, 33.7);  // 9 degrees of freedom, probability 1e-4.
}

TEST(RandomSequence, BelowHandlesTheEnds) {
  RandomSequence sequence(RandomKey(7, "ends"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sequence.Below(1), 0u);
    EXPECT_LT(sequence.Below((uint64_t{1} << 63) + 1), (uint64_t{1} << 63) + 1);
  }
}

TEST(Permutation, HoldsEveryIndexOnce) {
  std::vector<int64_t> order = Permutation(RandomKey(1, "shuffle"), 60000);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  std::vector<int64_t> identity(60000);
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_EQ(order, identity);
}

TEST(Permutation, IsEquallyLikelyForEveryOrder) {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) {
    ++counts[Permutation(RandomKey(1, "shuffle").Fold(epoch), 4)];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += std::pow(count - 1000.0, 2) / 1000;
  EXPECT_LT(chi_square, 58.6);  // 23 degrees of freedom, probability 6e-5.
}

TEST(Permutation, OfNothingIsEmpty) {
  EXPECT_TRUE(Permutation(RandomKey(1, "shuffle"), 0).empty());
  EXPECT_EQ(Permutation(RandomKey(1, "shuffle"), 1), std::vector<int64_t>{0});
}

}  // namespace
}  // namespace weft
