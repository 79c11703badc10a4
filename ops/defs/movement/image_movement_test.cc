// Pad, CenterCropPad, DepthToSpace, SpaceToDepth and ReverseSequence.
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase PadCase(Tensor x, const std::vector<int64_t>& pads, const std::string& mode = "constant") {
  return {.op = "Pad", .attributes = {{"mode", mode}}, .inputs = {std::move(x), Int64s(pads)}};
}

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

TEST(PadTest, FillsByHand) {
  const Tensor x = Floats({1, 2, 3});
  EXPECT_TRUE(ExpectOutputs(PadCase(x, {1, 2}), {Floats({0, 1, 2, 3, 0, 0})}));
  EXPECT_TRUE(
      ExpectOutputs(PadCase(x, {3, 4}, "reflect"), {Floats({2, 3, 2, 1, 2, 3, 2, 1, 2, 3})}));
  EXPECT_TRUE(ExpectOutputs(PadCase(x, {2, 1}, "edge"), {Floats({1, 1, 1, 2, 3, 3})}));
  EXPECT_TRUE(ExpectOutputs(PadCase(x, {2, 4}, "wrap"), {Floats({2, 3, 1, 2, 3, 1, 2, 3, 1})}));
  EXPECT_TRUE(ExpectOutputs(PadCase(x, {-1, 2}), {Floats({2, 3, 0, 0})}));
}

TEST(PadTest, AgreesWithReferenceInAllModes) {
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        PadCase(RandomTensor({2, 3, 5}, 1), {1, 0, 4, 2, 3, -2}, mode)));
    OpCase some_axes = PadCase(RandomTensor({3, 7, 2, 3}, 1), {2, 1, -1, 9}, mode);
    some_axes.inputs.push_back(Tensor());
    some_axes.inputs.push_back(Tensor::Of<int32_t>({2}, std::vector<int32_t>{-1, 1}));
    EXPECT_TRUE(CheckKernelAgainstReference(some_axes));
  }
}

TEST(PadTest, TakesAnyType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kInt8, DType::kUint64,
                            DType::kBool, DType::kFloat8E4M3Fn}) {
    OpCase pad = PadCase(Cast(RandomTensor({5, 3}, 1, -4, 4), dtype), {1, 2, 0, 1});
    pad.inputs.push_back(Cast(Tensor::Scalar<float>(1), dtype));
    const auto padded = RunOp(pad);
    ASSERT_TRUE(padded.ok()) << padded.status();
    EXPECT_EQ((*padded)[0].dtype(), dtype);
  }
}

TEST(PadTest, PadsElementsSmallerThanAByte) {
  for (const DType dtype : {DType::kInt4, DType::kFloat6E2M3}) {
    OpCase pad = PadCase(Cast(Floats({1, -2, 3}), dtype), {1, 1});
    pad.inputs.push_back(Cast(Tensor::Scalar<float>(-7), dtype));
    const auto padded = RunOp(pad);
    ASSERT_TRUE(padded.ok()) << padded.status();
    EXPECT_EQ(*ToInt64s((*padded)[0]), (std::vector<int64_t>{-7, 1, -2, 3, -7}));
  }
}

TEST(PadTest, HandlesDimensionsOfZero) {
  EXPECT_TRUE(
      ExpectOutputs(PadCase(*Tensor::Zeros(DType::kFloat32, {0}), {1, 1}), {Floats({0, 0})}));
  EXPECT_TRUE(ExpectError(PadCase(*Tensor::Zeros(DType::kFloat32, {0}), {1, 1}, "edge"),
                          absl::StatusCode::kInvalidArgument, {"none to pad with"}));
}

TEST(PadTest, GradientTakesThePaddingAway) {
  EXPECT_TRUE(CheckGradient(PadCase(RandomTensor({3, 4}, 1), {1, 2, 0, 3})));
}

TEST(PadTest, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(ExpectError(PadCase(RandomTensor({3, 4}, 1), {1, 2}),
                          absl::StatusCode::kInvalidArgument, {"'pads' has 2 values"}));
  EXPECT_TRUE(ExpectError(PadCase(RandomTensor({3}, 1), {-2, -2}),
                          absl::StatusCode::kInvalidArgument, {"-1"}));
  EXPECT_TRUE(ExpectError(PadCase(RandomTensor({3}, 1), {1, 1}, "mirror"),
                          absl::StatusCode::kInvalidArgument, {"'mirror'", "reflect"}));
}

TEST(CenterCropPadTest, KeepsTheMiddle) {
  const auto to = [](int64_t size) {
    return OpCase{.op = "CenterCropPad", .inputs = {Floats({1, 2, 3, 4}), Int64s({size})}};
  };
  EXPECT_TRUE(TensorsNear(RunOp(to(1)).value()[0], Floats({2})));
  EXPECT_TRUE(TensorsNear(RunOp(to(7)).value()[0], Floats({0, 1, 2, 3, 4, 0, 0})));
}

OpCase Blocks(const std::string& op, Shape shape, const std::string& mode) {
  return {.op = op,
          .attributes = {{"blocksize", int64_t{2}}, {"mode", mode}},
          .inputs = {RandomTensor(std::move(shape), 1)}};
}

TEST(DepthSpaceTest, AgreesWithReferenceAndGradient) {
  for (const char* mode : {"DCR", "CRD"}) {
    for (const OpCase& blocks : {Blocks("DepthToSpace", {2, 12, 3, 5}, mode),
                                 Blocks("SpaceToDepth", {2, 3, 6, 4}, mode)}) {
      EXPECT_TRUE(CheckKernelAgainstReference(blocks));
      EXPECT_TRUE(CheckGradient(blocks));
    }
  }
  EXPECT_TRUE(CheckKernelAgainstReference(Blocks("DepthToSpace", {0, 4, 3, 5}, "DCR")));
}

TEST(DepthSpaceTest, RefusesWhatCannotBeDivided) {
  EXPECT_TRUE(ExpectError(Blocks("DepthToSpace", {1, 6, 2, 2}, "DCR"),
                          absl::StatusCode::kInvalidArgument, {"6 cannot be divided by 4"}));
}

OpCase Reversed(std::vector<int64_t> lengths, int64_t batch, int64_t time) {
  return {.op = "ReverseSequence",
          .attributes = {{"batch_axis", batch}, {"time_axis", time}},
          .inputs = {RandomTensor({4, 4, 3}, 1), Int64s(lengths)}};
}

TEST(ReverseSequenceTest, AgreesWithReferenceAndGradient) {
  for (const OpCase& reversed : {Reversed({1, 2, 3, 4}, 1, 0), Reversed({0, 4, 2, 1}, 0, 1)}) {
    EXPECT_TRUE(CheckKernelAgainstReference(reversed));
    EXPECT_TRUE(CheckGradient(reversed, {.inputs = {0}}));
  }
}

TEST(ReverseSequenceTest, RefusesLengthsBeyondTheSequence) {
  EXPECT_TRUE(ExpectError(Reversed({1, 5, 3, 4}, 1, 0), absl::StatusCode::kInvalidArgument,
                          {"sequence_lens[1] is 5", "4 steps"}));
}

TEST(SpaceToDepth, DoesNotCountChannelsBeyondAllBounds) {
  Graph graph;
  const Shape image{1, int64_t{1} << 36, 1 << 16, 1 << 16};
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("SpaceToDepth",
                               {graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, image})},
                               {{"blocksize", int64_t{1 << 16}}});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  EXPECT_EQ(graph.value(y).type.ToString(), "float32[1,?,1,1]");
}

}  // namespace
}  // namespace weft::testing
