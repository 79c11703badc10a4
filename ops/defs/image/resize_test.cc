#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase WithScales(Tensor x, const std::vector<float>& scales, Attributes attributes) {
  return {.op = "Resize",
          .attributes = std::move(attributes),
          .inputs = {std::move(x), Tensor(),
                     Tensor::Of<float>({static_cast<int64_t>(scales.size())}, scales)}};
}
OpCase WithSizes(Tensor x, const std::vector<int64_t>& sizes, Attributes attributes) {
  return {.op = "Resize",
          .attributes = std::move(attributes),
          .inputs = {std::move(x), Tensor(), Tensor(), Int64s(sizes)}};
}
Attributes Mode(const std::string& mode, const std::string& coordinates = "half_pixel") {
  return {{"mode", mode}, {"coordinate_transformation_mode", coordinates}};
}

TEST(ResizeTest, InterpolatesByHand) {
  const Tensor x = Tensor::Of<float>({2}, std::vector<float>{0, 4});
  EXPECT_TRUE(ExpectOutputs(WithScales(x, {2}, Mode("linear")),
                            {Tensor::Of<float>({4}, std::vector<float>{0, 1, 3, 4})}));
  EXPECT_TRUE(ExpectOutputs(WithSizes(x, {3}, Mode("linear", "align_corners")),
                            {Tensor::Of<float>({3}, std::vector<float>{0, 2, 4})}));
  EXPECT_TRUE(ExpectOutputs(WithScales(x, {2}, Mode("nearest", "asymmetric")),
                            {Tensor::Of<float>({4}, std::vector<float>{0, 0, 4, 4})}));
}

TEST(ResizeTest, AgreesWithReferenceInAllModes) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                    "align_corners", "asymmetric"}) {
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>{1, 2, 13, 4}, {1, 2, 3, 17}, {2, 2, 7, 1}, {1, 0, 3, 3}}) {
        EXPECT_TRUE(CheckKernelAgainstReference(
            WithSizes(RandomTensor({1, 2, 7, 5}, 1), sizes, Mode(mode, coordinates)),
            {.of_magnitude = 5e-6}));
      }
      EXPECT_TRUE(CheckKernelAgainstReference(
          WithScales(RandomTensor({7, 11}, 2), {0.63f, 2.2f}, Mode(mode, coordinates)),
          {.of_magnitude = 5e-6}));
    }
  }
}

TEST(ResizeTest, AgreesWithReferenceWithFilters) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* option : {"antialias", "exclude_outside"}) {
      Attributes attributes = Mode(mode);
      attributes.Set(option, int64_t{1});
      attributes.Set("axes", std::vector<int64_t>{1, -2});
      EXPECT_TRUE(CheckKernelAgainstReference(
          WithSizes(RandomTensor({2, 11, 13, 3}, 1), {4, 29}, attributes), {.of_magnitude = 5e-6}));
    }
  }
}

TEST(ResizeTest, CropsToTheRegion) {
  Attributes attributes = Mode("linear", "tf_crop_and_resize");
  attributes.Set("extrapolation_value", 10.0f);
  OpCase crop = WithSizes(RandomTensor({5, 4}, 1), {3, 3}, attributes);
  crop.inputs[1] = Tensor::Of<float>({4}, std::vector<float>{0.4f, 0.6f, 1.2f, 0.9f});
  EXPECT_TRUE(CheckKernelAgainstReference(crop, {.of_magnitude = 5e-6}));
}

TEST(ResizeTest, RoundsWholeNumbers) {
  const Tensor x = Tensor::Of<uint8_t>({3}, std::vector<uint8_t>{0, 255, 0});
  const auto linear = RunOp(WithScales(x, {2}, Mode("linear")));
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_TRUE(TensorsNear((*linear)[0],
                          Tensor::Of<uint8_t>({6}, std::vector<uint8_t>{0, 64, 191, 191, 64, 0})));
  const auto cubic = RunOp(WithScales(x, {2}, Mode("cubic")));  // overshoots both bounds
  ASSERT_TRUE(cubic.ok()) << cubic.status();
  EXPECT_EQ((*cubic)[0].data<uint8_t>()[0], 0);
  for (const DType dtype : {DType::kFloat16, DType::kFloat64, DType::kInt8, DType::kInt64}) {
    const auto y = RunOp(WithScales(Cast(x, dtype), {2}, Mode("linear")));
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ((*y)[0].dtype(), dtype);
  }
}

TEST(ResizeTest, KeepsTheAspectRatio) {
  Attributes attributes = Mode("linear");
  attributes.Set("keep_aspect_ratio_policy", std::string("not_larger"));
  auto y = RunOp(WithSizes(RandomTensor({4, 8}, 1), {4, 6}, attributes));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].shape(), (Shape{3, 6}));
  attributes.Set("keep_aspect_ratio_policy", std::string("not_smaller"));
  y = RunOp(WithSizes(RandomTensor({4, 8}, 1), {4, 6}, attributes));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].shape(), (Shape{4, 8}));
}

TEST(ResizeTest, NearestSeesWholeCoordinatesThoughTheScaleIsRounded) {
  Attributes attributes = Mode("nearest", "pytorch_half_pixel");
  attributes.Set("nearest_mode", std::string("floor"));
  // (1 + 0.5) / 0.6 - 0.5 = 2, but 0.6 has no float32.
  const Tensor x = Tensor::Of<float>({5}, std::vector<float>{0, 1, 2, 3, 4});
  EXPECT_TRUE(ExpectOutputs(WithScales(x, {0.6f}, attributes),
                            {Tensor::Of<float>({3}, std::vector<float>{0, 2, 3})}));
}

TEST(ResizeTest, RefusesWhatDoesNotFit) {
  const Tensor x = RandomTensor({4, 8}, 1);
  EXPECT_TRUE(ExpectError(WithSizes(x, {4}, Mode("linear")), absl::StatusCode::kInvalidArgument,
                          {"'sizes' has 1 values for 2 axes"}));
  EXPECT_TRUE(ExpectError(WithScales(x, {1, -2}, Mode("linear")),
                          absl::StatusCode::kInvalidArgument, {"'scales' holds -2"}));
  EXPECT_TRUE(ExpectError(WithScales(x, {1, 2}, Mode("bilinear")),
                          absl::StatusCode::kInvalidArgument, {"'bilinear'", "cubic"}));
}

}  // namespace
}  // namespace weft::testing
