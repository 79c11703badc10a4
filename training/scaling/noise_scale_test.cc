#include "training/scaling/noise_scale.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Gradients of a batch with two numbers, by micro-batch: means and samples.
struct Part {
  double x = 0;
  double y = 0;
  int64_t samples = 0;
  double square() const { return x * x + y * y; }
};

// What a step reports where each sample weighs `weight`.
NoiseSums SumsOf(const std::vector<Part>& parts, double weight) {
  NoiseSums sums;
  Part whole;
  for (const Part& part : parts) {
    const double own = weight * static_cast<double>(part.samples);
    sums.micro_squares += own * own * part.square() / own;
    sums.micro_batches += 1;
    sums.weight += own;
    sums.samples += part.samples;
    whole.x += own * part.x;
    whole.y += own * part.y;
  }
  sums.whole_square = whole.square();
  return sums;
}

// McCandlish et al., appendix A.1, for two sizes of a batch.
NoiseMeasurement ByThePaper(double small_square, double small, double big_square, double big) {
  return {(small_square - big_square) / (1 / small - 1 / big),
          (big * big_square - small * small_square) / (big - small)};
}

const std::vector<Part> kEqual = {{1, 2, 8}, {3, -1, 8}, {0.5, 0.25, 8}, {2, 2, 8}};

TEST(NoiseScaleTest, EqualMicroBatchesGiveThePapersEstimates) {
  double small_square = 0, x = 0, y = 0;
  for (const Part& part : kEqual) {
    small_square += part.square() / 4;
    x += part.x / 4;
    y += part.y / 4;
  }
  const NoiseMeasurement paper = ByThePaper(small_square, 8, x * x + y * y, 32);
  for (const double weight : {1.0, 5.0, 0.25}) {
    const auto measured = MeasureNoise(SumsOf(kEqual, weight));
    ASSERT_TRUE(measured.has_value());
    EXPECT_NEAR(measured->variance, paper.variance, 1e-12) << weight;
    EXPECT_NEAR(measured->square, paper.square, 1e-12) << weight;
  }
}

// The spread of weighted means around their mean is the truth of an analysis of variance.
TEST(NoiseScaleTest, UnequalMicroBatchesCountByTheirWeight) {
  const std::vector<Part> parts = {{1, 2, 3}, {3, -1, 8}, {0.5, 0.25, 1}};
  double x = 0, y = 0;
  for (const Part& part : parts) {
    x += static_cast<double>(part.samples) * part.x / 12;
    y += static_cast<double>(part.samples) * part.y / 12;
  }
  double variance = 0;
  for (const Part& part : parts) {
    const Part off = {part.x - x, part.y - y, 0};
    variance += static_cast<double>(part.samples) * off.square() / 2;
  }
  const auto measured = MeasureNoise(SumsOf(parts, 1));
  ASSERT_TRUE(measured.has_value());
  EXPECT_NEAR(measured->variance, variance, 1e-12);
  EXPECT_NEAR(measured->square, x * x + y * y - variance / 12, 1e-12);
}

TEST(NoiseScaleTest, ALossScaleIsTakenOut) {
  NoiseSums scaled = SumsOf(kEqual, 1);
  const NoiseMeasurement plain = *MeasureNoise(scaled);
  scaled.gradient_factor = 1024;
  scaled.micro_squares *= 1024.0 * 1024;
  scaled.whole_square *= 1024.0 * 1024;
  EXPECT_DOUBLE_EQ(MeasureNoise(scaled)->variance, plain.variance);
  EXPECT_DOUBLE_EQ(MeasureNoise(scaled)->square, plain.square);
}

TEST(NoiseScaleTest, OneMicroBatchOrAnOverflowIsNoMeasurement) {
  EXPECT_FALSE(MeasureNoise(SumsOf({{1, 2, 8}}, 1)).has_value());
  EXPECT_FALSE(MeasureNoise(NoiseSums()).has_value());
  NoiseSums overflow = SumsOf(kEqual, 1);
  overflow.micro_squares = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(MeasureNoise(overflow).has_value());
}

TEST(NoiseScaleTest, TheRatioIsThatOfTheMeans) {
  NoiseAverage noise;
  EXPECT_FALSE(noise.scale().has_value());
  noise.Add({100, 1});
  noise.Add({300, 3});
  noise.Add({200, -1});  // single measurements may be below zero
  EXPECT_EQ(noise.count(), 3);
  ASSERT_TRUE(noise.scale().has_value());
  EXPECT_NEAR(*noise.scale(), 200, 1e-9);
}

TEST(NoiseScaleTest, OldMeasurementsAreForgotten) {
  NoiseAverage noise;
  for (int64_t i = 0; i < NoiseAverage::kWindow; ++i) noise.Add({100, 1});
  for (int64_t i = 0; i < 10 * NoiseAverage::kWindow; ++i) noise.Add({900, 1});
  EXPECT_NEAR(*noise.scale(), 900, 1);
}

TEST(NoiseScaleTest, AResumedRunGoesOnWithTheAverage) {
  NoiseAverage whole, first;
  for (int i = 0; i < 7; ++i) whole.Add({10.0 * i, 1.0 + i});
  for (int i = 0; i < 4; ++i) first.Add({10.0 * i, 1.0 + i});
  std::map<std::string, double> state = {{"other", 3}};
  first.SaveState(state);
  NoiseAverage second;
  second.LoadState(state);
  for (int i = 4; i < 7; ++i) second.Add({10.0 * i, 1.0 + i});
  EXPECT_EQ(second.count(), whole.count());
  EXPECT_EQ(second.mean().variance, whole.mean().variance);
  EXPECT_EQ(second.mean().square, whole.mean().square);
  NoiseAverage fresh;
  fresh.LoadState({});
  EXPECT_EQ(fresh.count(), 0);
}

// A count of -1 divided by 0 at the next measurement.
TEST(NoiseScaleTest, AStateThatIsNoneIsForgotten) {
  for (const double count : {-1.0, 0.5, 1e300, std::nan("")}) {
    NoiseAverage noise;
    noise.Add({5, 5});
    noise.LoadState({{"noise.count", count}, {"noise.variance", 7}, {"noise.square", 7}});
    EXPECT_EQ(noise.count(), 0) << count;
    noise.Add({12, 3});
    EXPECT_EQ(noise.scale(), 4) << count;
  }
}

TEST(NoiseScaleTest, TheTextSaysWhatItMeansForTheBatch) {
  NoiseAverage noise;
  EXPECT_THAT(NoiseText(noise, 128), HasSubstr("no step has measured it"));
  noise.Add({312, 1});
  EXPECT_THAT(NoiseText(noise, 128),
              HasSubstr("noise scale about 312 samples, from 1 measurement"));
  EXPECT_THAT(NoiseText(noise, 128), HasSubstr("batch of 128 is near it"));
  EXPECT_THAT(NoiseText(noise, 16), HasSubstr("batch of 16 is far below it"));
  EXPECT_THAT(NoiseText(noise, 4096), HasSubstr("batch of 4096 is far above it"));
  noise.Add({312, -5});
  EXPECT_THAT(NoiseText(noise, 128), HasSubstr("the noise hides the gradient"));
}

}  // namespace
}  // namespace weft
