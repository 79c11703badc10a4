#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);
using Ints = std::vector<int64_t>;

OpCase ConvCase(Shape x, Shape w, Attributes attributes = {}, bool bias = false) {
  OpCase conv{.op = "Conv",
              .attributes = std::move(attributes),
              .inputs = {RandomTensor(x, 1), RandomTensor(w, 2)}};
  if (bias) conv.inputs.push_back(RandomTensor({w.dim(0)}, 3));
  return conv;
}

TEST(ConvTest, SumsWindowsByHand) {
  const Tensor x = Tensor::Of<float>({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor w = Tensor::Of<float>({1, 1, 2, 2}, {1, 0, 0, -1});
  EXPECT_TRUE(ExpectOutputs({.op = "Conv", .inputs = {x, w}},
                            {Tensor::Of<float>({1, 1, 2, 2}, {-4, -4, -4, -4})}));
}

TEST(ConvTest, AgreesWithReferenceOnModelShapes) {
  const Attributes same = {{"pads", Ints{1, 1, 1, 1}}};
  const Attributes halved = {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}};
  EXPECT_TRUE(CheckKernelAgainstReference(
      ConvCase({2, 1, 28, 28}, {6, 1, 5, 5}, {{"pads", Ints{2, 2, 2, 2}}}, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({2, 6, 14, 14}, {16, 6, 5, 5}, {}, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({1, 3, 16, 16}, {64, 3, 3, 3}, same)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({1, 64, 8, 8}, {64, 64, 3, 3}, same)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({1, 32, 8, 8}, {64, 32, 3, 3}, halved)));
  EXPECT_TRUE(CheckKernelAgainstReference(
      ConvCase({1, 32, 8, 8}, {64, 32, 1, 1}, {{"strides", Ints{2, 2}}})));
}

TEST(ConvTest, AgreesWithReferenceWhereThreadsTakePiecesOfTheBatch) {
  const Attributes same = {{"pads", Ints{1, 1, 1, 1}}};
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({6, 16, 16, 16}, {32, 16, 3, 3}, same, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({12, 8, 12, 12}, {16, 8, 3, 3}, same)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({5, 3, 31, 33}, {17, 3, 3, 3}, same)));
  const OpCase gradient{.domain = kWeft,
                        .op = "ConvGradInput",
                        .attributes = {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}},
                        .inputs = {RandomTensor({6, 32, 16, 16}, 1),
                                   RandomTensor({32, 16, 3, 3}, 2), Int64s({6, 16, 16, 16})}};
  EXPECT_TRUE(CheckKernelAgainstReference(gradient));
}

TEST(ConvTest, AgreesWithReferenceOnOddWindows) {
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({2, 3, 9}, {5, 3, 4}, {}, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({2, 3, 5, 6, 7}, {5, 3, 2, 3, 2}, {}, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(
      ConvCase({2, 3, 9, 8}, {5, 3, 3, 2},
               {{"pads", Ints{0, 2, 1, 3}}, {"strides", Ints{3, 2}}, {"dilations", Ints{2, 1}}})));
  for (const char* auto_pad : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        ConvCase({1, 2, 7, 8}, {3, 2, 4, 2},
                 {{"auto_pad", std::string(auto_pad)}, {"strides", Ints{2, 1}}})));
  }
}

TEST(ConvTest, AgreesWithReferenceInGroups) {
  EXPECT_TRUE(CheckKernelAgainstReference(
      ConvCase({2, 6, 7, 7}, {9, 2, 3, 3}, {{"group", int64_t{3}}}, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(
      ConvCase({2, 32, 7, 7}, {32, 1, 3, 3}, {{"group", int64_t{32}}}, true)));
}

TEST(ConvTest, NoSamplesGiveNoOutputAndZeroGradients) {
  EXPECT_TRUE(CheckKernelAgainstReference(ConvCase({0, 2, 5, 5}, {3, 2, 3, 3}, {}, true)));
  OpCase gradient{.domain = kWeft,
                  .op = "ConvGradWeights",
                  .attributes = {{"kernel_shape", Ints{3, 3}}},
                  .inputs = {RandomTensor({0, 2, 5, 5}, 1), RandomTensor({0, 3, 3, 3}, 2)},
                  .outputs = {true, true}};
  EXPECT_TRUE(ExpectOutputs(gradient, {*Tensor::Zeros(DType::kFloat32, {3, 2, 3, 3}),
                                       *Tensor::Zeros(DType::kFloat32, {3})}));
}

// oneDNN writes a few bytes past a workspace where AVX2 is all there is; in an arena, another
// value lies there. The fake device looks at the bytes around each buffer.
TEST(ConvTest, GradientsOfOddChannelsStayWithinTheirWorkspace) {
  struct Sizes {
    Shape x;
    Shape dy;
    Ints kernel;
    Ints strides;
    int64_t group;
  };
  const Sizes all[] = {{{4, 4, 4, 5}, {4, 1, 2, 3}, {3, 3}, {1, 1}, 1},
                       {{4, 4, 4, 6}, {4, 3, 4, 6}, {1, 1}, {1, 1}, 1},
                       {{3, 3, 6, 4}, {3, 3, 3, 2}, {1, 1}, {2, 2}, 1},
                       {{5, 3, 4, 6}, {5, 1, 2, 3}, {1, 1}, {2, 2}, 1},
                       {{12, 6, 5, 4}, {12, 18, 4, 3}, {2, 2}, {1, 1}, 3},
                       {{6, 10, 4, 5}, {6, 8, 2, 3}, {3, 3}, {1, 1}, 2}};
  for (const Sizes& sizes : all) {
    const OpCase gradient{.domain = kWeft,
                          .op = "ConvGradWeights",
                          .attributes = {{"kernel_shape", sizes.kernel},
                                         {"strides", sizes.strides},
                                         {"group", sizes.group}},
                          .inputs = {RandomTensor(sizes.x, 1), RandomTensor(sizes.dy, 2)},
                          .outputs = {true, true}};
    EXPECT_TRUE(CheckKernelAgainstReference(gradient)) << sizes.x.ToString();
  }
}

TEST(ConvTest, NoInputChannelsGiveTheBias) {
  const OpCase conv{.op = "Conv",
                    .inputs = {RandomTensor({1, 0, 2, 1}, 1), RandomTensor({2, 0, 1, 1}, 2),
                               Tensor::Of<float>({2}, {5, 7})}};
  EXPECT_TRUE(ExpectOutputs(conv, {Tensor::Of<float>({1, 2, 2, 1}, {5, 5, 7, 7})}));
}

TEST(ConvTest, SaysWhatDoesNotFit) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(
      ExpectError(ConvCase({1, 3, 5, 5}, {4, 2, 3, 3}), invalid, {"3 channels", "[4,2,3,3]"}));
  EXPECT_TRUE(ExpectError(ConvCase({1, 2, 5}, {4, 2, 3, 3}), invalid, {"same rank"}));
  EXPECT_TRUE(ExpectError(ConvCase({1, 2, 2, 2}, {4, 2, 3, 3}), invalid, {"does not fit"}));
  EXPECT_TRUE(ExpectError(ConvCase({1, 2, 5, 5}, {4, 2, 3, 3}, {{"kernel_shape", Ints{2, 2}}}),
                          invalid, {"kernel_shape"}));
  EXPECT_TRUE(ExpectError(ConvCase({1, 4, 5, 5}, {3, 2, 3, 3}, {{"group", int64_t{2}}}), invalid,
                          {"3 output channels", "2 groups"}));
  OpCase bias = ConvCase({1, 2, 5, 5}, {4, 2, 3, 3});
  bias.inputs.push_back(RandomTensor({5}, 3));
  EXPECT_TRUE(ExpectError(bias, invalid, {"B has shape [5]"}));
}

TEST(ConvTest, RefusesGradientsOfOtherConvolutions) {
  const OpCase gradient{.domain = kWeft,
                        .op = "ConvGradInput",
                        .attributes = {{"kernel_shape", Ints{3, 3}}},
                        .inputs = {RandomTensor({1, 4, 4, 4}, 1), RandomTensor({4, 2, 3, 3}, 2),
                                   Int64s({1, 2, 9, 9})}};
  EXPECT_TRUE(ExpectError(gradient, absl::StatusCode::kInvalidArgument,
                          {"[1,2,9,9]", "[1,4,7,7]", "[1,4,4,4]"}));
}

TEST(ConvTest, KeepsSymbolicBatch) {
  Graph graph;
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 1, 28, 28})});
  const ValueId w = graph.AddInput("w", {ValueKind::kTensor, DType::kFloat32, Shape{6, 1, 5, 5}});
  GraphBuilder builder(graph);
  EXPECT_EQ(builder.type(builder.Op("Conv", {x, w})).shape.ToString(), "[N,6,24,24]");
}

TEST(ConvTest, GradientsAgreeWithDifferences) {
  EXPECT_TRUE(CheckGradient(ConvCase({2, 2, 5, 4}, {3, 2, 3, 2}, {}, true)));
  EXPECT_TRUE(CheckGradient(
      ConvCase({1, 2, 6, 5}, {3, 2, 3, 3}, {{"pads", Ints{1, 2, 0, 1}}, {"strides", Ints{2, 3}}})));
  EXPECT_TRUE(CheckGradient(ConvCase({1, 2, 7}, {2, 2, 3}, {{"dilations", Ints{2}}})));
  EXPECT_TRUE(CheckGradient(
      ConvCase({1, 4, 4, 4}, {6, 2, 3, 3}, {{"group", int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}})));
  EXPECT_TRUE(CheckGradient(ConvCase({1, 2, 3, 4, 3}, {2, 2, 2, 2, 2})));
  EXPECT_TRUE(CheckGradient(
      ConvCase({1, 2, 5, 5}, {2, 2, 2, 2}, {{"auto_pad", std::string("SAME_LOWER")}})));
}

TEST(ConvTest, BiasGradientStandsAloneWhenWeightsAreFrozen) {
  EXPECT_TRUE(CheckGradient(ConvCase({2, 2, 5, 4}, {3, 2, 3, 2}, {}, true), {.inputs = {2}}));
}

OpCase GradientCase(const std::string& op, std::vector<Tensor> inputs, Attributes attributes,
                    std::vector<bool> outputs = {true}) {
  attributes.Set("kernel_shape", Ints{3, 3});
  return {.domain = kWeft,
          .op = op,
          .attributes = std::move(attributes),
          .inputs = std::move(inputs),
          .outputs = std::move(outputs)};
}

TEST(ConvTest, GradientKernelsAgreeWithReferenceOnModelShapes) {
  struct Case {
    Shape x, w, y;
    Ints pads;
  };
  const Case cases[] = {
      {{2, 6, 14, 14}, {16, 6, 3, 3}, {2, 16, 12, 12}, {0, 0, 0, 0}},
      {{2, 1, 14, 14}, {6, 1, 3, 3}, {2, 6, 14, 14}, {1, 1, 1, 1}},
      {{1, 64, 8, 8}, {32, 64, 3, 3}, {1, 32, 8, 8}, {1, 1, 1, 1}},
      {{3, 17, 9, 5}, {19, 17, 3, 3}, {3, 19, 9, 5}, {1, 1, 1, 1}},
  };
  for (const Case& c : cases) {
    const Tensor x = RandomTensor(c.x, 1);
    const Tensor w = RandomTensor(c.w, 2);
    const Tensor dy = RandomTensor(c.y, 3);
    const Attributes attributes = {{"pads", c.pads}};
    EXPECT_TRUE(CheckKernelAgainstReference(GradientCase(
        "ConvGradInput", {dy, w, Int64s(Ints(c.x.dims().begin(), c.x.dims().end()))}, attributes)));
    EXPECT_TRUE(CheckKernelAgainstReference(
        GradientCase("ConvGradWeights", {x, dy}, attributes, {true, true})));
  }
}

TEST(ConvTest, ShardsByBatchAndChannels) {
  EXPECT_TRUE(CheckSharding(ConvCase({4, 3, 5, 5}, {6, 3, 3, 3}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(ConvCase({4, 3, 5, 5}, {6, 3, 3, 3}, {}, true), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(ConvCase({4, 6, 5, 5}, {18, 1, 3, 3}, {{"group", int64_t{6}}}, true),
                            {.min_splits = 5}));
}

TEST(ConvTest, GradientsShardByBatchAndChannels) {
  const Tensor x = RandomTensor({4, 6, 5, 5}, 1);
  const Tensor w = RandomTensor({6, 6, 3, 3}, 2);
  const Tensor grouped = RandomTensor({6, 3, 3, 3}, 2);
  const Tensor dy = RandomTensor({4, 6, 3, 3}, 3);
  const Tensor shape = Int64s({4, 6, 5, 5});
  const Attributes two = {{"group", int64_t{2}}};
  EXPECT_TRUE(CheckSharding(GradientCase("ConvGradInput", {dy, w, shape}, {}), {.min_splits = 6}));
  EXPECT_TRUE(
      CheckSharding(GradientCase("ConvGradInput", {dy, grouped, shape}, two), {.min_splits = 5}));
  EXPECT_TRUE(CheckSharding(GradientCase("ConvGradWeights", {x, dy}, {}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(GradientCase("ConvGradWeights", {x, dy}, two, {true, true}),
                            {.min_splits = 5}));
}

TEST(ConvTest, RefusesWeightsWithoutAxes) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.Op("Conv", {graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape()}),
                      builder.Float(1)});
  EXPECT_EQ(builder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(builder.status().message().find("W has shape [], expected"), absl::string_view::npos)
      << builder.status();
}

}  // namespace
}  // namespace weft::testing
