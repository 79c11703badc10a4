#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::ExpectOutputs;
using testing::Int64s;
using testing::OpCase;
using testing::RandomTensor;

OpCase ShapeOf(Shape shape, Attributes attributes) {
  return {.op = "Shape", .attributes = attributes, .inputs = {RandomTensor(shape, 1)}};
}

TEST(ShapeTest, GivesTheWholeShape) {
  EXPECT_TRUE(ExpectOutputs(ShapeOf({3, 4, 5}, {}), {Int64s({3, 4, 5})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf({}, {}), {Int64s({})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf({0, 2}, {}), {Int64s({0, 2})}));
}

TEST(ShapeTest, CutsAtStartAndEnd) {
  const Shape shape{3, 4, 5};
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"start", int64_t{1}}}), {Int64s({4, 5})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"end", int64_t{1}}}), {Int64s({3})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"start", int64_t{-1}}}), {Int64s({5})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"end", int64_t{-1}}}), {Int64s({3, 4})}));
  EXPECT_TRUE(
      ExpectOutputs(ShapeOf(shape, {{"start", int64_t{1}}, {"end", int64_t{2}}}), {Int64s({4})}));
}

TEST(ShapeTest, ClampsStartAndEnd) {
  const Shape shape{3, 4, 5};
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"start", int64_t{-10}}}), {Int64s({3, 4, 5})}));
  EXPECT_TRUE(ExpectOutputs(ShapeOf(shape, {{"end", int64_t{10}}}), {Int64s({3, 4, 5})}));
  EXPECT_TRUE(
      ExpectOutputs(ShapeOf(shape, {{"start", int64_t{2}}, {"end", int64_t{1}}}), {Int64s({})}));
}

TEST(SizeTest, CountsElements) {
  const OpCase three_axes{.op = "Size", .inputs = {RandomTensor({3, 4, 5}, 1)}};
  EXPECT_TRUE(ExpectOutputs(three_axes, {Tensor::Scalar<int64_t>(60)}));
  const OpCase none{.op = "Size", .inputs = {RandomTensor({3, 0}, 1)}};
  EXPECT_TRUE(ExpectOutputs(none, {Tensor::Scalar<int64_t>(0)}));
}

// The shape of an input x[N,T,128], with symbols, as a builder sees it.
class ShapeArithmeticTest : public ::testing::Test {
 protected:
  ShapeArithmeticTest() : builder_(graph_) {
    x_ = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                               SymbolicShape({Dim::Symbol("N"), Dim::Symbol("T"), 128})});
  }
  std::string ShapeText(ValueId value) {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    return builder_.type(value).shape.ToString();
  }

  Graph graph_;
  GraphBuilder builder_;
  ValueId x_;
};

TEST_F(ShapeArithmeticTest, ReshapeByAShapeKeepsSymbols) {
  const ValueId shape = builder_.Op("Shape", {x_});
  const ValueId flat = builder_.Op("Reshape", {x_, builder_.Ints({-1})});
  EXPECT_EQ(ShapeText(builder_.Op("Reshape", {flat, shape})), "[N,T,128]");
}

TEST_F(ShapeArithmeticTest, GatherUnsqueezeConcatSplitAndSliceHandSymbolsOn) {
  const ValueId shape = builder_.Op("Shape", {x_});
  const ValueId t = builder_.Op("Gather", {shape, builder_.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId t_list = builder_.Op("Unsqueeze", {t, builder_.Ints({0})});
  const ValueId n_list =
      builder_.Op("Slice", {shape, builder_.Ints({0}), builder_.Ints({1}), builder_.Ints({0})});
  const ValueId tail =
      builder_.Ops("", "Split", {shape, builder_.Ints({1, 2})}, {}, {true, true})[1];
  const ValueId target = builder_.Op("Concat", {t_list, n_list, tail}, {{"axis", int64_t{0}}});
  const ValueId zeros = builder_.Op("ConstantOfShape", {target});
  EXPECT_EQ(ShapeText(zeros), "[T,N,T,128]");
}

// As PyTorch exports x.view(x.size(0), -1): training refused such models, since it took what
// decides the shape for data.
TEST_F(ShapeArithmeticTest, AMinusOneBesideSymbolsIsDeduced) {
  const ValueId shape = builder_.Op("Shape", {x_});
  const ValueId lead =
      builder_.Op("Slice", {shape, builder_.Ints({0}), builder_.Ints({2}), builder_.Ints({0})});
  const ValueId target = builder_.Op("Concat", {lead, builder_.Ints({-1})}, {{"axis", int64_t{0}}});
  const ValueId reshaped = builder_.Op("Reshape", {x_, target});
  EXPECT_EQ(ShapeText(reshaped), "[N,T,128]");
  const ValueId last =
      builder_.Op("Concat", {builder_.Ints({-1}), builder_.Ints({32})}, {{"axis", int64_t{0}}});
  const ValueId flat = builder_.Op("Reshape", {reshaped, last});
  EXPECT_EQ(ShapeText(flat), "[?,32]");
  graph_.AddOutput(builder_.Op("Reshape", {flat, builder_.Op("Shape", {flat})}));
  EXPECT_TRUE(ValueInputsOf(graph_).empty());
}

TEST_F(ShapeArithmeticTest, SliceUpToTheSymbolOfAnAxisIsThatAxis) {
  const ValueId t = builder_.Op("Shape", {x_}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const ValueId whole = builder_.Op("Slice", {x_, builder_.Ints({0}), t, builder_.Ints({1})});
  EXPECT_EQ(ShapeText(whole), "[N,T,128]");
  const ValueId unknown = builder_.Op("Slice", {x_, builder_.Ints({1}), t, builder_.Ints({1})});
  EXPECT_EQ(ShapeText(unknown), "[N,?,128]");
}

TEST_F(ShapeArithmeticTest, RangeUpToASymbolIsAsLong) {
  const ValueId t = builder_.Op(
      "Gather", {builder_.Op("Shape", {x_}), builder_.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId range = builder_.Op("Range", {builder_.Constant(Tensor::Scalar<int64_t>(0)), t,
                                              builder_.Constant(Tensor::Scalar<int64_t>(1))});
  EXPECT_EQ(ShapeText(range), "[T]");
}

TEST_F(ShapeArithmeticTest, AnIndexOutsideTheShapeIsAnError) {
  builder_.Op("Gather",
              {builder_.Op("Shape", {x_}), builder_.Constant(Tensor::Scalar<int64_t>(3))});
  EXPECT_EQ(builder_.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(builder_.status().message().find("index 3 is outside [-3, 3)"), std::string::npos)
      << builder_.status();
}

}  // namespace
}  // namespace weft
