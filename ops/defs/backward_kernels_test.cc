// The backward kernels of GridSample, RoiAlign, MaxRoiPool, Resize, DeformConv, CumProd and Det: by
// hand, on two threads, and what they refuse. That they are gradients is shown for random cases in
// training/graph/operator_gradients_test.cc.
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::Of<float>(std::move(shape), values);
}

::testing::AssertionResult Gives(const OpCase& op_case, const Tensor& expected) {
  const auto outputs = RunOp(op_case);
  if (!outputs.ok()) return ::testing::AssertionFailure() << outputs.status();
  return TensorsNear((*outputs)[0], expected);
}

TEST(ResizeGradTest, AddsUpWhatWasRepeated) {
  const OpCase resize{
      .domain = "ai.weft",
      .op = "ResizeGrad",
      .attributes = {{"mode", std::string("nearest")}},
      .inputs = {Floats({1, 4}, {1, 2, 3, 4}), Int64s({1, 2}), Tensor(), Floats({2}, {1, 2})}};
  EXPECT_TRUE(Gives(resize, Floats({1, 2}, {3, 7})));
}

TEST(ResizeGradTest, OutputsOutsideTheRegionGiveNothing) {
  // The region [0, 2] of two elements: the last of three outputs lies at 2, outside.
  const OpCase crop{
      .domain = "ai.weft",
      .op = "ResizeGrad",
      .attributes = {{"mode", std::string("linear")},
                     {"coordinate_transformation_mode", std::string("tf_crop_and_resize")}},
      .inputs = {Floats({3}, {1, 2, 4}), Int64s({2}), Floats({2}, {0, 2}), Tensor(), Int64s({3})}};
  EXPECT_TRUE(Gives(crop, Floats({2}, {1, 2})));
}

TEST(ResizeGradTest, RefusesAGradientOfAnotherShape) {
  EXPECT_TRUE(ExpectError(
      {.domain = "ai.weft",
       .op = "ResizeGrad",
       .inputs = {Floats({1, 3}, {1, 2, 3}), Int64s({1, 2}), Tensor(), Floats({2}, {1, 2})}},
      absl::StatusCode::kInvalidArgument, {"[1,3]", "[1,2]"}));
}

TEST(DetGradTest, GivesCofactorsOfSingularMatricesToo) {
  const auto gradient = [](const Tensor& dy, const Tensor& x) {
    return OpCase{.domain = "ai.weft", .op = "DetGrad", .inputs = {dy, x}};
  };
  EXPECT_TRUE(Gives(gradient(Floats({}, {1}), Floats({2, 2}, {1, 2, 2, 4})),
                    Floats({2, 2}, {4, -2, -2, 1})));
  EXPECT_TRUE(
      Gives(gradient(Floats({}, {3}), Floats({2, 2}, {0, 0, 0, 0})), Floats({2, 2}, {0, 0, 0, 0})));
  EXPECT_TRUE(Gives(gradient(Floats({1}, {2}), Floats({1, 1, 1}, {0})), Floats({1, 1, 1}, {2})));
}

TEST(CumProdGradTest, DividesByNothing) {
  // y = x0, x0 x1, x0 x1 x2 of 2, 0, 3.
  EXPECT_TRUE(Gives(
      {.domain = "ai.weft",
       .op = "CumProdGrad",
       .inputs = {Floats({3}, {1, 1, 1}), Floats({3}, {2, 0, 3}), Tensor::Scalar<int64_t>(0)}},
      Floats({3}, {1, 8, 0})));
}

TEST(MaxRoiPoolGradTest, GivesToTheFirstOfTheLargest) {
  EXPECT_TRUE(Gives({.domain = "ai.weft",
                     .op = "MaxRoiPoolGrad",
                     .attributes = {{"pooled_shape", Ints{1, 1}}},
                     .inputs = {Floats({1, 1, 1, 1}, {5}), Floats({1, 1, 2, 2}, {1, 3, 3, 0}),
                                Floats({1, 5}, {0, 0, 0, 1, 1})}},
                    Floats({1, 1, 2, 2}, {0, 5, 0, 0})));
}

TEST(RoiAlignGradTest, RefusesSamplesThatAreNotThere) {
  const OpCase align{.domain = "ai.weft",
                     .op = "RoiAlignGrad",
                     .inputs = {Floats({1, 1, 1, 1}, {5}), RandomTensor({1, 1, 2, 2}, 1),
                                Floats({1, 4}, {0, 0, 1, 1}), Int64s({1})}};
  EXPECT_TRUE(ExpectError(align, absl::StatusCode::kInvalidArgument, {"batch_indices[0] is 1"}));
}

TEST(BackwardKernelsTest, HaveTheSameBitsOnTwoThreads) {
  const std::vector<bool> two = {true, true};
  EXPECT_TRUE(SameBitsOnTwoThreads(
      {.domain = "ai.weft",
       .op = "GridSampleGrad",
       .inputs = {RandomTensor({2, 3, 40, 50}, 1), RandomTensor({2, 3, 17, 13}, 2),
                  RandomTensor({2, 40, 50, 2}, 3, -1.2, 1.2)},
       .outputs = two}));
  EXPECT_TRUE(SameBitsOnTwoThreads(
      {.domain = "ai.weft",
       .op = "RoiAlignGrad",
       .attributes = {{"sampling_ratio", int64_t{2}}},
       .inputs = {RandomTensor({3, 5, 14, 14}, 1), RandomTensor({2, 5, 30, 30}, 2),
                  Floats({3, 4}, {1, 2, 20, 25, 3, 4, 9, 9, 0, 0, 29, 29}), Int64s({0, 1, 1})},
       .outputs = two}));
  EXPECT_TRUE(
      SameBitsOnTwoThreads({.domain = "ai.weft",
                            .op = "ResizeGrad",
                            .attributes = {{"mode", std::string("cubic")}},
                            .inputs = {RandomTensor({1, 5, 61, 83}, 1), Int64s({1, 5, 37, 101}),
                                       Tensor(), Tensor(), Int64s({1, 5, 61, 83})}}));
  EXPECT_TRUE(SameBitsOnTwoThreads(
      {.domain = "ai.weft",
       .op = "DeformColumnsGrad",
       .attributes = {{"kernel_shape", Ints{3, 3}}},
       .inputs = {RandomTensor({1, 36, 400}, 1), RandomTensor({1, 4, 22, 22}, 2),
                  RandomTensor({1, 18, 20, 20}, 3, -2, 2)},
       .outputs = two}));
  EXPECT_TRUE(SameBitsOnTwoThreads(
      {.domain = "ai.weft",
       .op = "CumProdGrad",
       .inputs = {RandomTensor({70, 90, 11}, 1), RandomTensor({70, 90, 11}, 2, 0.5, 1.5),
                  Tensor::Scalar<int64_t>(1)}}));
}

}  // namespace
}  // namespace weft::testing
