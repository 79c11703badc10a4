#include "training/data/sample_transform.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;
using ::testing::HasSubstr;

DataSpec::File With(const std::string& augmentations) {
  DataSpec::File file;
  file.input = "x";
  file.augmentations = ParseAugmentations(augmentations).value();
  return file;
}

std::vector<float> Apply(const DataSpec::File& file, const Shape& shape, std::vector<float> sample,
                         uint64_t number = 0, double max_value = 0) {
  const auto transform = SampleTransform::Create(file, shape, max_value);
  EXPECT_TRUE(transform.ok()) << transform.status();
  std::vector<float> scratch;
  transform->Apply(sample, RandomKey(1, "test").Fold(number), scratch);
  return sample;
}

std::string CreateError(const DataSpec::File& file, const Shape& shape) {
  return std::string(SampleTransform::Create(file, shape, 0).status().message());
}

std::vector<float> Counting(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

TEST(SampleTransformTest, NormalizesWithOnePairOrByChannel) {
  DataSpec::File file;
  file.normalization = {false, {1}, {2}};
  EXPECT_THAT(Apply(file, {4}, {1, 3, 5, -1}), ElementsAre(0, 1, 2, -1));
  file.normalization = {false, {1, 10}, {2, 0.5}};
  EXPECT_THAT(Apply(file, {2, 1, 2}, {1, 3, 10, 11}), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(Apply(file, {2}, {3, 9}), ElementsAre(1, -2));
}

TEST(SampleTransformTest, MeansMustBeOneForEachChannel) {
  DataSpec::File file;
  file.input = "x";
  file.normalization = {false, {1, 2}, {1, 1}};
  EXPECT_EQ(CreateError(file, {3, 8, 8}),
            "--normalize x: 2 means, but a sample [3,8,8] has 3 channels; give 1 or 3");
  EXPECT_THAT(CreateError(file, {8, 8}), HasSubstr("has 1 channels"));
}

TEST(SampleTransformTest, FlipsEveryOtherSample) {
  const std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<float> flipped = {3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10};
  int flips = 0;
  for (uint64_t number = 0; number < 1000; ++number) {
    const std::vector<float> sample = Apply(With("flip"), {2, 2, 3}, image, number);
    if (sample == flipped) {
      ++flips;
    } else {
      EXPECT_EQ(sample, image);
    }
  }
  EXPECT_NEAR(flips, 500, 80);  // five standard deviations
}

TEST(SampleTransformTest, CropsAreTheImageMovedWithZerosBehind) {
  const std::vector<float> image = Counting(2 * 3 * 4);
  std::set<std::pair<int, int>> moves;
  for (uint64_t number = 0; number < 500; ++number) {
    const std::vector<float> sample = Apply(With("crop:1"), {2, 3, 4}, image, number);
    bool found = false;
    for (int down = -1; down <= 1; ++down) {
      for (int right = -1; right <= 1; ++right) {
        std::vector<float> expected(image.size());
        for (int c = 0; c < 2; ++c) {
          for (int y = 0; y < 3; ++y) {
            for (int x = 0; x < 4; ++x) {
              const int from_y = y - down, from_x = x - right;
              const bool inside = from_y >= 0 && from_y < 3 && from_x >= 0 && from_x < 4;
              if (inside) {
                expected[(c * 3 + y) * 4 + x] = image[(c * 3 + from_y) * 4 + from_x];
              }
            }
          }
        }
        if (expected == sample) {
          moves.insert({down, right});
          found = true;
        }
      }
    }
    EXPECT_TRUE(found) << number;
  }
  EXPECT_EQ(moves.size(), 9u);
}

TEST(SampleTransformTest, ACropBeyondTheImageLeavesZeros) {
  std::set<size_t> zeros;
  for (uint64_t number = 0; number < 200; ++number) {
    const auto sample = Apply(With("crop:5"), {2, 2}, {1, 1, 1, 1}, number);
    zeros.insert(static_cast<size_t>(std::count(sample.begin(), sample.end(), 0.0f)));
  }
  EXPECT_TRUE(zeros.count(4) > 0 && zeros.count(0) > 0);
}

TEST(SampleTransformTest, BrightnessIsOneFactorForAllAndBounded) {
  float min_value = 10, max_value = 0;
  for (uint64_t number = 0; number < 500; ++number) {
    const auto sample = Apply(With("brightness:0.5"), {1, 1, 2}, {1, 0.5}, number);
    EXPECT_FLOAT_EQ(sample[1], sample[0] / 2);
    min_value = std::min(min_value, sample[0]);
    max_value = std::max(max_value, sample[0]);
  }
  EXPECT_GE(min_value, 0.5f);
  EXPECT_LT(min_value, 0.55f);
  EXPECT_LE(max_value, 1.5f);
  EXPECT_GT(max_value, 1.45f);
  for (uint64_t number = 0; number < 50; ++number) {
    EXPECT_LE(Apply(With("brightness:0.5"), {1, 1, 2}, {1, 0.5}, number, /*max_value=*/1)[0], 1);
  }
}

TEST(SampleTransformTest, CutoutsAreSquaresOfTheMean) {
  DataSpec::File file = With("cutout:2");
  file.normalization = {false, {7}, {1}};
  std::set<size_t> zeros;
  for (uint64_t number = 0; number < 300; ++number) {
    const auto sample = Apply(file, {2, 4, 4}, std::vector<float>(32, 8), number);
    // The same square of both channels; cut where it passes the edge.
    EXPECT_TRUE(std::equal(sample.begin(), sample.begin() + 16, sample.begin() + 16));
    for (const float value : sample) EXPECT_TRUE(value == 0 || value == 1) << value;
    zeros.insert(static_cast<size_t>(std::count(sample.begin(), sample.end(), 0.0f)));
  }
  EXPECT_EQ(zeros, (std::set<size_t>{2, 4, 8}));
}

TEST(SampleTransformTest, TheSameKeyDrawsTheSame) {
  const DataSpec::File file = With("flip,crop:2,brightness:0.3,cutout:2");
  const std::vector<float> image = Counting(3 * 8 * 8);
  std::set<std::vector<float>> seen;
  for (uint64_t number = 0; number < 20; ++number) {
    const auto sample = Apply(file, {3, 8, 8}, image, number);
    EXPECT_EQ(Apply(file, {3, 8, 8}, image, number), sample);
    seen.insert(sample);
  }
  EXPECT_GT(seen.size(), 18u);
}

TEST(SampleTransformTest, OnlyImagesAreAugmented) {
  EXPECT_EQ(CreateError(With("flip"), {784}),
            "--augment x: a sample is [784], expected an image [H,W] or [C,H,W]");
}

TEST(MeasureNormalizationTest, IsMeanAndDeviationOfTheRowsByFeature) {
  const auto column = NewTensorColumn({}, Tensor::Of<double>({4, 2}, {1, 5, 2, 5, 1e6, 1e6, 6, 5}));
  const std::vector<int64_t> rows = {0, 1, 3};
  const auto found = MeasureNormalization(*column, rows, /*scale=*/false);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->mean.size(), 2u);
  EXPECT_DOUBLE_EQ(found->mean[0], 3);
  EXPECT_NEAR(found->deviation[0], std::sqrt(14.0 / 3), 1e-12);
  EXPECT_EQ(found->mean[1], 5);
  EXPECT_EQ(found->deviation[1], 1);  // all equal
}

TEST(MeasureNormalizationTest, IsByChannelAndScaled) {
  const auto column = NewTensorColumn({}, Tensor::Of<uint8_t>({1, 2, 1, 2}, {0, 255, 51, 51}));
  const auto found = MeasureNormalization(*column, std::vector<int64_t>{0}, /*scale=*/true);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NEAR(found->mean[0], 0.5, 1e-12);
  EXPECT_NEAR(found->deviation[0], 0.5, 1e-12);
  EXPECT_NEAR(found->mean[1], 0.2, 1e-12);
}

TEST(MeasureNormalizationTest, ManyRowsAreSampledEvenly) {
  const int64_t count = 100000;
  const auto column = NewTensorColumn({}, Tensor::Of<float>(Shape{count, 1}, Counting(count)));
  std::vector<int64_t> rows(count);
  for (int64_t i = 0; i < count; ++i) rows[i] = i;
  const auto found = MeasureNormalization(*column, rows, /*scale=*/false);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NEAR(found->mean[0], 50000, 50);
  EXPECT_NEAR(found->deviation[0], 28867.5, 50);
}

}  // namespace
}  // namespace weft
