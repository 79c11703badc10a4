#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);

OpCase MatMulCase(Shape a, Shape b) {
  return {.op = "MatMul", .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)}};
}

OpCase TransposingCase(Shape a, Shape b, bool trans_a, bool trans_b) {
  return {.domain = kWeft,
          .op = "MatMul",
          .attributes = {{"transA", int64_t{trans_a}}, {"transB", int64_t{trans_b}}},
          .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)}};
}

OpCase ReduceBatchCase(Shape a, Shape b) {
  return {.domain = kWeft,
          .op = "MatMulReduceBatch",
          .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)}};
}

OpCase GemmCase(std::vector<Tensor> inputs, Attributes attributes = {}) {
  return {.op = "Gemm", .attributes = std::move(attributes), .inputs = std::move(inputs)};
}

TEST(MatMulTest, MultipliesByHand) {
  const OpCase product{.op = "MatMul",
                       .inputs = {Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}),
                                  Tensor::Of<float>({3, 2}, {1, 0, 0, 1, 2, -1})}};
  EXPECT_TRUE(ExpectOutputs(product, {Tensor::Of<float>({2, 2}, {7, -1, 16, -1})}));
}

TEST(MatMulTest, VectorsLoseTheirAxis) {
  const Tensor vector = Tensor::Of<float>({2}, {1, 10});
  const Tensor matrix = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(
      ExpectOutputs({.op = "MatMul", .inputs = {vector, vector}}, {Tensor::Of<float>({}, {101})}));
  EXPECT_TRUE(ExpectOutputs({.op = "MatMul", .inputs = {vector, matrix}},
                            {Tensor::Of<float>({2}, {31, 42})}));
  EXPECT_TRUE(ExpectOutputs({.op = "MatMul", .inputs = {matrix, vector}},
                            {Tensor::Of<float>({2}, {21, 43})}));
}

TEST(MatMulTest, AgreesWithReferenceForAllWaysToBroadcast) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{17, 33}, {33, 5}},
                                                       {{4, 17, 33}, {33, 5}},
                                                       {{4, 3, 7}, {4, 7, 5}},
                                                       {{2, 3, 4, 7}, {2, 3, 7, 5}},
                                                       {{2, 1, 4, 7}, {1, 3, 7, 5}},
                                                       {{2, 3, 4, 7}, {3, 7, 5}},
                                                       {{4, 7}, {3, 7, 5}},
                                                       {{7}, {2, 3, 7, 5}},
                                                       {{2, 3, 4, 7}, {7}},
                                                       {{1, 1}, {1, 1}},
                                                       {{2, 1, 3, 1, 2, 2}, {4, 1, 5, 2, 2}}};
  for (const auto& [a, b] : shapes) EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase(a, b)));
}

TEST(MatMulTest, AgreesWithReferenceWhereThreadsTakePieces) {
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({37, 32, 64}, {37, 64, 48})));
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({50, 33, 65}, {50, 65, 37})));  // off 64 bytes
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({5, 1, 64, 96}, {1, 3, 96, 64})));
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({1031, 41}, {41, 67})));
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({67, 41}, {41, 1031})));
  EXPECT_TRUE(CheckKernelAgainstReference(TransposingCase({41, 1031}, {67, 41}, true, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(TransposingCase({41, 67}, {1031, 41}, true, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(
      GemmCase({RandomTensor({1031, 41}, 1), RandomTensor({41, 67}, 2), RandomTensor({67}, 3)})));
  EXPECT_TRUE(CheckKernelAgainstReference(
      GemmCase({RandomTensor({67, 41}, 1), RandomTensor({41, 1031}, 2), RandomTensor({1031}, 3)})));
}

TEST(MatMulTest, OperandsWithoutElementsGiveNothingOrZeros) {
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({0, 3}, {3, 2})));
  EXPECT_TRUE(CheckKernelAgainstReference(MatMulCase({0, 4, 3}, {3, 2})));
  EXPECT_TRUE(CheckKernelAgainstReference(ReduceBatchCase({0, 3}, {0, 2})));
  EXPECT_TRUE(ExpectOutputs(MatMulCase({2, 0}, {0, 2}), {Tensor::Of<float>({2, 2}, {0, 0, 0, 0})}));
}

TEST(MatMulTest, OtherTypesAreExactWhereTheyCanBe) {
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64}) {
    const double low = dtype == DType::kInt32 || dtype == DType::kInt64 ? -50 : 0;
    const OpCase product{.op = "MatMul",
                         .inputs = {RandomTensor({3, 70}, 1, low, 50, dtype),
                                    RandomTensor({70, 67}, 2, low, 50, dtype)}};
    EXPECT_TRUE(CheckKernelAgainstReference(product, {.of_magnitude = 0}));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const OpCase product{
        .op = "MatMul",
        .inputs = {Cast(RandomTensor({3, 70}, 1), dtype), Cast(RandomTensor({70, 67}, 2), dtype)}};
    EXPECT_TRUE(CheckKernelAgainstReference(product, {.of_magnitude = 4e-3}));
  }
}

TEST(MatMulTest, SaysWhichAxesDoNotFit) {
  EXPECT_TRUE(ExpectError(MatMulCase({2, 3}, {4, 5}), absl::StatusCode::kInvalidArgument,
                          {"contracted", "3", "4"}));
  EXPECT_TRUE(ExpectError(MatMulCase({2, 4, 3}, {3, 3, 5}), absl::StatusCode::kInvalidArgument,
                          {"batch axes", "2", "3"}));
  EXPECT_TRUE(ExpectError(MatMulCase({}, {3}), absl::StatusCode::kInvalidArgument, {"rank 1"}));
}

TEST(MatMulTest, KeepsSymbolicDimensions) {
  Graph graph;
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(), 7})});
  const ValueId w = graph.AddInput("w", {ValueKind::kTensor, DType::kFloat32, Shape{7, 5}});
  GraphBuilder builder(graph);
  EXPECT_EQ(builder.type(builder.Op("MatMul", {x, w})).shape.ToString(), "[N,?,5]");
  EXPECT_EQ(builder.type(builder.WeftOp("MatMulReduceBatch", {x, x})).shape.ToString(), "[7,7]");
}

TEST(MatMulTest, GradientsAgreeWithDifferences) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{4, 3}, {3, 5}}, {{2, 3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {2, 4, 5}},
      {{3}, {3}},       {{2, 3, 4}, {4}},    {{4}, {2, 4, 3}},       {{4}, {4, 3}},
      {{3, 4}, {4}},    {{3, 4}, {2, 4, 5}}};
  for (const auto& [a, b] : shapes) EXPECT_TRUE(CheckGradient(MatMulCase(a, b)));
}

TEST(MatMulTest, WeightGradientOfBatchedRowsIsOneProduct) {
  const auto gradient = BuildGradientGraph(MatMulCase({2, 3, 4}, {4, 5}), {1});
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  const ValueDef& weight = gradient->graph->value(gradient->input_gradients[1]);
  EXPECT_EQ(gradient->graph->node(weight.producer).op, "MatMulReduceBatch");
  EXPECT_EQ(gradient->graph->num_nodes(), 2);
}

TEST(MatMulTest, ShardsByEveryFactor) {
  EXPECT_TRUE(CheckSharding(MatMulCase({4, 6}, {6, 5}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(MatMulCase({4, 2, 6}, {6, 5}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(MatMulCase({4, 2, 6}, {4, 6, 5}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(MatMulCase({3, 1, 4, 6}, {2, 6, 5}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(MatMulCase({6}, {3, 6, 5}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(MatMulCase({3, 5, 6}, {6}), {.min_splits = 6}));
}

TEST(TransposingMatMulTest, AgreesWithReferenceInAllOrders) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const Shape a = trans_a ? Shape{33, 17} : Shape{17, 33};
      const Shape b = trans_b ? Shape{21, 33} : Shape{33, 21};
      const OpCase product = TransposingCase(a, b, trans_a, trans_b);
      EXPECT_TRUE(CheckKernelAgainstReference(product));
      EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(product), {.of_magnitude = 1e-13}));
    }
  }
  EXPECT_TRUE(CheckKernelAgainstReference(TransposingCase({2, 3, 9, 8}, {2, 3, 7, 9}, true, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(TransposingCase({2, 3, 9, 8}, {9, 7}, true, false)));
}

TEST(TransposingMatMulTest, GradientsAgreeWithDifferences) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const Shape a = trans_a ? Shape{2, 4, 3} : Shape{2, 3, 4};
      const Shape b = trans_b ? Shape{5, 4} : Shape{4, 5};
      EXPECT_TRUE(CheckGradient(TransposingCase(a, b, trans_a, trans_b)));
    }
  }
}

TEST(TransposingMatMulTest, ShardsByEveryFactor) {
  EXPECT_TRUE(CheckSharding(TransposingCase({2, 6, 4}, {2, 5, 6}, true, true), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(TransposingCase({6, 4}, {6, 5}, true, false), {.min_splits = 6}));
}

TEST(MatMulReduceBatchTest, AgreesWithReference) {
  EXPECT_TRUE(CheckKernelAgainstReference(ReduceBatchCase({130, 20}, {130, 33})));
  EXPECT_TRUE(CheckKernelAgainstReference(ReduceBatchCase({3, 5, 20}, {3, 5, 33})));
}

TEST(MatMulReduceBatchTest, GradientsAgreeWithDifferences) {
  EXPECT_TRUE(CheckGradient(ReduceBatchCase({2, 3, 4}, {2, 3, 5})));
}

TEST(MatMulReduceBatchTest, RowsAreSummedOverShards) {
  EXPECT_TRUE(CheckSharding(ReduceBatchCase({4, 3, 6}, {4, 3, 5}), {.min_splits = 8}));
}

TEST(MatMulReduceBatchTest, RefusesOtherBatchAxes) {
  EXPECT_TRUE(ExpectError(ReduceBatchCase({4, 3, 6}, {12, 5}), absl::StatusCode::kInvalidArgument,
                          {"same rank"}));
}

TEST(GemmTest, ScalesAndAddsByHand) {
  const OpCase gemm =
      GemmCase({Tensor::Of<float>({2, 1}, {1, 2}), Tensor::Of<float>({1, 2}, {3, 4}),
                Tensor::Of<float>({2}, {10, 20})},
               {{"alpha", 2.0f}, {"beta", 0.5f}});
  EXPECT_TRUE(ExpectOutputs(gemm, {Tensor::Of<float>({2, 2}, {11, 18, 17, 26})}));
}

TEST(GemmTest, AgreesWithReferenceForAllShapesOfC) {
  for (const Shape& c :
       {Shape{}, Shape{1}, Shape{21}, Shape{1, 21}, Shape{17, 1}, Shape{17, 21}, Shape{1, 1}}) {
    for (const float alpha : {1.0f, 0.25f}) {
      EXPECT_TRUE(CheckKernelAgainstReference(
          GemmCase({RandomTensor({17, 33}, 1), RandomTensor({33, 21}, 2), RandomTensor(c, 3)},
                   {{"alpha", alpha}, {"beta", 2 * alpha}})));
      EXPECT_TRUE(CheckKernelAgainstReference(
          GemmCase({RandomTensor({17, 33}, 1), RandomTensor({33, 21}, 2), RandomTensor(c, 3)},
                   {{"alpha", alpha}})));
    }
  }
}

TEST(GemmTest, AgreesWithReferenceInAllOrders) {
  for (const int64_t trans_a : {0, 1}) {
    for (const int64_t trans_b : {0, 1}) {
      const Tensor a = RandomTensor(trans_a ? Shape{33, 17} : Shape{17, 33}, 1);
      const Tensor b = RandomTensor(trans_b ? Shape{21, 33} : Shape{33, 21}, 2);
      const OpCase gemm =
          GemmCase({a, b, RandomTensor({21}, 3)}, {{"transA", trans_a}, {"transB", trans_b}});
      EXPECT_TRUE(CheckKernelAgainstReference(gemm));
      EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(gemm), {.of_magnitude = 1e-13}));
    }
  }
}

TEST(GemmTest, NoRowsNoColumnsNoSums) {
  for (const Shape& a : {Shape{0, 3}, Shape{2, 0}}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        GemmCase({RandomTensor(a, 1), RandomTensor({a.dim(1), 4}, 2), RandomTensor({4}, 3)})));
  }
}

TEST(GemmTest, SaysWhatDoesNotFit) {
  const Tensor a = RandomTensor({2, 3}, 1);
  EXPECT_TRUE(ExpectError(GemmCase({a, RandomTensor({2, 3}, 2)}),
                          absl::StatusCode::kInvalidArgument, {"contracted", "3", "2"}));
  EXPECT_TRUE(ExpectError(GemmCase({a, RandomTensor({3, 4}, 2), RandomTensor({5}, 3)}),
                          absl::StatusCode::kInvalidArgument, {"[5]", "[2,4]"}));
  EXPECT_TRUE(ExpectError(GemmCase({RandomTensor({2, 3, 4}, 1), a}),
                          absl::StatusCode::kInvalidArgument, {"matrix", "[2,3,4]"}));
}

TEST(GemmTest, GradientsAgreeWithDifferences) {
  for (const int64_t trans_a : {0, 1}) {
    for (const int64_t trans_b : {0, 1}) {
      const Tensor a = RandomTensor(trans_a ? Shape{3, 4} : Shape{4, 3}, 1);
      const Tensor b = RandomTensor(trans_b ? Shape{5, 3} : Shape{3, 5}, 2);
      EXPECT_TRUE(CheckGradient(
          GemmCase({a, b}, {{"transA", trans_a}, {"transB", trans_b}, {"alpha", 1.0f}})));
    }
  }
}

TEST(GemmTest, BiasGradientsAgreeWithDifferences) {
  for (const Shape& c : {Shape{}, Shape{5}, Shape{1, 5}, Shape{4, 1}, Shape{4, 5}}) {
    EXPECT_TRUE(CheckGradient(
        GemmCase({RandomTensor({4, 3}, 1), RandomTensor({3, 5}, 2), RandomTensor(c, 3)},
                 {{"alpha", 0.5f}, {"beta", 3.0f}})));
  }
}

TEST(GemmTest, ShardsWithoutSplittingSumsUnderBias) {
  EXPECT_TRUE(CheckSharding(GemmCase({RandomTensor({4, 6}, 1), RandomTensor({6, 5}, 2)}),
                            {.min_splits = 6}));
  for (const Shape& c : {Shape{}, Shape{5}, Shape{1, 5}, Shape{4, 1}, Shape{4, 5}}) {
    EXPECT_TRUE(CheckSharding(
        GemmCase({RandomTensor({4, 6}, 1), RandomTensor({6, 5}, 2), RandomTensor(c, 3)},
                 {{"alpha", 0.5f}, {"beta", 3.0f}}),
        {.min_splits = 4}));
  }
}

}  // namespace
}  // namespace weft::testing
