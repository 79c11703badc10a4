// GridSample, AffineGrid, RoiAlign, MaxRoiPool, MaxUnpool, Col2Im, and pools of any rank.
#include <cmath>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::Of<float>(std::move(shape), values);
}

// The grid that samples every element where it is.
TEST(GridSampleTest, TheIdentityGivesTheImage) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 2, 3, 4, 5}}) {
    const int64_t axes = shape.rank() - 2;
    std::vector<float> theta;
    for (int64_t n = 0; n < shape.dim(0); ++n) {
      for (int64_t i = 0; i < axes; ++i) {
        for (int64_t k = 0; k <= axes; ++k) theta.push_back(i == k ? 1.0f : 0.0f);
      }
    }
    for (const int64_t align : {0, 1}) {
      const auto grid = RunOp({.op = "AffineGrid",
                               .attributes = {{"align_corners", align}},
                               .inputs = {Floats({shape.dim(0), axes, axes + 1}, theta),
                                          Int64s(Ints(shape.dims().begin(), shape.dims().end()))}});
      ASSERT_TRUE(grid.ok()) << grid.status();
      const Tensor x = RandomTensor(shape, 1);
      for (const char* mode : {"linear", "nearest", "cubic"}) {
        const auto y = RunOp({.op = "GridSample",
                              .attributes = {{"align_corners", align}, {"mode", std::string(mode)}},
                              .inputs = {x, (*grid)[0]}});
        ASSERT_TRUE(y.ok()) << y.status();
        EXPECT_TRUE(TensorsNear((*y)[0], x, {.of_magnitude = 1e-5})) << mode;
      }
    }
  }
}

TEST(GridSampleTest, PadsByHand) {
  const Tensor x = Floats({1, 1, 1, 2}, {1, 3});
  const Tensor far = Floats({1, 1, 2, 2}, {-3, 0, 1.5f, 0});  // pixels -2.5 and 2
  const auto sample = [&](const std::string& padding) {
    return RunOp({.op = "GridSample",
                  .attributes = {{"padding_mode", padding}, {"mode", std::string("nearest")}},
                  .inputs = {x, far}})
        .value()[0];
  };
  EXPECT_TRUE(TensorsNear(sample("zeros"), Floats({1, 1, 1, 2}, {0, 0})));
  EXPECT_TRUE(TensorsNear(sample("border"), Floats({1, 1, 1, 2}, {1, 3})));
  EXPECT_TRUE(TensorsNear(sample("reflection"), Floats({1, 1, 1, 2}, {3, 3})));
}

TEST(GridSampleTest, NoNumberIsNowhere) {
  const auto y =
      RunOp({.op = "GridSample",
             .inputs = {RandomTensor({1, 1, 2, 2}, 1), Floats({1, 1, 2, 2}, {NAN, 0, 1e30f, 0})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Floats({1, 1, 1, 2}, {0, 0})));
}

OpCase Align(const std::vector<float>& roi, Attributes attributes) {
  attributes.Set("output_height", int64_t{2});
  attributes.Set("output_width", int64_t{2});
  return {.op = "RoiAlign",
          .attributes = std::move(attributes),
          .inputs = {Floats({1, 1, 4, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
                     Floats({1, 4}, roi), Int64s({0})}};
}

TEST(RoiAlignTest, AveragesByHand) {
  const auto y = RunOp(Align({0, 0, 4, 4}, {{"sampling_ratio", int64_t{2}}}));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Floats({1, 1, 2, 2}, {2.5f, 4.5f, 10.5f, 12.5f})));
}

TEST(RoiAlignTest, RefusesRegionsWithoutBounds) {
  OpCase align = Align({0, 0, 1e20f, 4}, {});
  EXPECT_TRUE(ExpectError(align, absl::StatusCode::kInvalidArgument, {"rois[0]"}));
  align = Align({0, 0, 4, 4}, {});
  align.inputs[2] = Int64s({1});
  EXPECT_TRUE(ExpectError(align, absl::StatusCode::kInvalidArgument, {"batch_indices[0] is 1"}));
}

// With a fixed number of samples the extent is not asked for: they lie nowhere.
TEST(RoiAlignTest, AnEndThatIsNoNumberHasNoSamples) {
  const auto y = RunOp(Align({0, 0, NAN, 4}, {{"sampling_ratio", int64_t{2}}}));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Floats({1, 1, 2, 2}, {0, 0, 0, 0})));
}

TEST(MaxRoiPoolTest, TakesTheLargestByHand) {
  const auto y =
      RunOp({.op = "MaxRoiPool",
             .attributes = {{"pooled_shape", Ints{2, 1}}},
             .inputs = {Align({0, 0, 1, 1}, {}).inputs[0], Floats({1, 5}, {0, 1, 0, 2, 3})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Floats({1, 1, 2, 1}, {6, 14})));
}

TEST(MaxUnpoolTest, UndoesMaxPool) {
  const Attributes window = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  const Tensor x = RandomDistinct({2, 3, 4, 6}, 1);
  const auto pooled =
      RunOp({.op = "MaxPool", .attributes = window, .inputs = {x}, .outputs = {true, true}});
  ASSERT_TRUE(pooled.ok()) << pooled.status();
  OpCase unpool{.op = "MaxUnpool", .attributes = window, .inputs = {(*pooled)[0], (*pooled)[1]}};
  const auto y = RunOp(unpool);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].shape(), x.shape());
  for (int64_t i = 0; i < (*pooled)[1].num_elements(); ++i) {
    EXPECT_EQ((*y)[0].data<float>()[(*pooled)[1].data<int64_t>()[i]],
              (*pooled)[0].data<float>()[i]);
  }
  unpool.inputs[1] = *Tensor::Zeros(DType::kInt64, (*pooled)[1].shape());
  unpool.inputs[1].mutable_data<int64_t>()[5] = 144;
  EXPECT_TRUE(
      ExpectError(unpool, absl::StatusCode::kInvalidArgument, {"I[5] is 144", "has 144 elements"}));
}

TEST(Col2ImTest, AddsWhatOverlaps) {
  // Windows of two over three elements: the middle one is in both.
  const auto y = RunOp(
      {.op = "Col2Im", .inputs = {Floats({1, 2, 2}, {1, 2, 10, 20}), Int64s({3}), Int64s({2})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Floats({1, 1, 3}, {1, 12, 20})));
}

TEST(PoolTest, TakesFourImageAxes) {
  const Tensor x = RandomDistinct({1, 2, 3, 4, 3, 5}, 1);
  const Attributes window = {{"kernel_shape", Ints{2, 2, 1, 3}},
                             {"pads", Ints{1, 0, 0, 1, 0, 1, 0, 0}},
                             {"strides", Ints{1, 2, 1, 2}}};
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "MaxPool", .attributes = window, .inputs = {x}, .outputs = {true, true}}));
  Attributes counted = window;
  counted.Set("count_include_pad", int64_t{1});
  for (const Attributes& attributes : {window, counted}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "AveragePool", .attributes = attributes, .inputs = {x}}));
  }
}

TEST(LpPoolTest, AgreesWithReference) {
  for (const int64_t p : {1, 2, 3}) {
    const Attributes window = {{"kernel_shape", Ints{3, 2}},
                               {"strides", Ints{2, 3}},
                               {"pads", Ints{1, 0, 0, 1}},
                               {"ceil_mode", int64_t{1}},
                               {"p", p}};
    const Tensor x = RandomTensor({2, 3, 6, 7}, 1);
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "LpPool", .attributes = window, .inputs = {x}},
                                            {.of_magnitude = 5e-6}));
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "GlobalLpPool", .attributes = {{"p", p}}, .inputs = {x}}, {.of_magnitude = 5e-6}));
  }
}

TEST(GlobalMaxPoolTest, AgreesWithReferenceAndGradient) {
  const OpCase pool{.op = "GlobalMaxPool", .inputs = {RandomDistinct({2, 3, 4, 5}, 1)}};
  EXPECT_TRUE(CheckKernelAgainstReference(pool));
  EXPECT_TRUE(CheckGradient(pool));
}

}  // namespace
}  // namespace weft::testing
