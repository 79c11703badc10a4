// The reductions other than ReduceSum and ReduceMean.
#include <cmath>
#include <limits>
#include <optional>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

class FoldTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The logarithm of a sum wants positive elements.
  OpCase Case(Shape shape, std::optional<std::vector<int64_t>> axes, bool keepdims = true,
              DType dtype = DType::kFloat32) const {
    const bool is_log = std::string(GetParam()) == "ReduceLogSum";
    const bool is_product = std::string(GetParam()) == "ReduceProd";
    OpCase op_case{.op = GetParam(),
                   .attributes = {{"keepdims", int64_t{keepdims}}},
                   .inputs = {RandomTensor(std::move(shape), 1, is_log ? 1 : -3, 3, dtype)}};
    if (is_product) op_case.inputs[0] = RandomTensor(op_case.inputs[0].shape(), 1, 0.9, 1.1, dtype);
    if (axes.has_value()) op_case.inputs.push_back(Int64s(*axes));
    return op_case;
  }
};

TEST_P(FoldTest, EverySetOfAxes) {
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<int64_t> axes;
    for (int d = 0; d < 4; ++d) {
      if (mask >> d & 1) axes.push_back(d % 2 == 0 ? d : d - 4);
    }
    for (const bool keepdims : {false, true}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Case({3, 17, 5, 7}, axes, keepdims)));
    }
  }
}

TEST_P(FoldTest, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::nullopt, false)));
    if (shape.rank() == 0) continue;
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::vector<int64_t>{-1})));
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::vector<int64_t>{0}, false)));
  }
}

TEST_P(FoldTest, WideMatrices) {
  EXPECT_TRUE(CheckKernelAgainstReference(Case({37, 131}, std::vector<int64_t>{0})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({131, 37}, std::vector<int64_t>{1})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({5, 70, 3, 67}, std::vector<int64_t>{0, 2})));
}

TEST_P(FoldTest, Types) {
  for (const DType dtype : {DType::kFloat64, DType::kInt32, DType::kInt64, DType::kUint32,
                            DType::kUint64, DType::kInt8, DType::kUint8}) {
    OpCase op_case{.op = GetParam(), .inputs = {RandomTensor({3, 4}, 1, 1, 4, dtype), Int64s({1})}};
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = 1e-12}));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case({3, 5}, std::vector<int64_t>{1}, true, dtype),
                                            {.of_magnitude = 1e-2}));
  }
}

TEST_P(FoldTest, NoAxesMayMeanNone) {
  OpCase op_case = Case({3, 5}, std::vector<int64_t>{});
  op_case.attributes.Set("noop_with_empty_axes", int64_t{1});
  EXPECT_TRUE(CheckKernelAgainstReference(op_case));
}

TEST_P(FoldTest, Gradients) {
  const std::string op = GetParam();
  if (op == "ReduceProd") return;
  OpCase op_case = Case({3, 4, 5}, std::vector<int64_t>{0, 2});
  op_case.inputs[0] =
      op == "ReduceLogSum" ? RandomTensor({3, 4, 5}, 1, 0.5, 2) : RandomDistinct({3, 4, 5}, 1);
  EXPECT_TRUE(CheckGradient(op_case, {.inputs = {}, .tolerance = 1e-5, .step = 1e-4}));
  op_case.attributes.Set("keepdims", int64_t{0});
  EXPECT_TRUE(CheckGradient(op_case, {.inputs = {}, .tolerance = 1e-5, .step = 1e-4}));
}

TEST_P(FoldTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case({4, 6}, std::vector<int64_t>{1}), {.min_splits = 2}));
}

TEST_P(FoldTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({521, 257}, std::vector<int64_t>{0})));
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({521, 257}, std::vector<int64_t>{1})));
}

INSTANTIATE_TEST_SUITE_P(Ops, FoldTest,
                         ::testing::Values("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
                                           "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
                                           "ReduceLogSumExp"),
                         [](const auto& info) { return std::string(info.param); });

Tensor OfNothing(const char* op) {
  return RunOp({.op = op, .inputs = {RandomTensor({2, 0}, 1), Int64s({1})}})->at(0);
}

TEST(Fold, OfNoElements) {
  const auto both = [](float value) { return Tensor::Of<float>({2, 1}, {value, value}); };
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceMax"), both(-kInfinity)));
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceMin"), both(kInfinity)));
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceProd"), both(1)));
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceL2"), both(0)));
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceLogSum"), both(-kInfinity)));
  EXPECT_TRUE(TensorsNear(OfNothing("ReduceLogSumExp"), both(-kInfinity)));
}

TEST(ReduceLogSumExp, NeitherOverflowsNorVanishes) {
  const auto of = [](const std::vector<float>& values) {
    return RunOp({.op = "ReduceLogSumExp", .inputs = {Floats(values)}})->at(0);
  };
  const auto expected = [](float value) { return Tensor::Of<float>({1}, {value}); };
  EXPECT_TRUE(TensorsNear(of({1000, 1000}), expected(1000 + std::log(2.0f))));
  EXPECT_TRUE(TensorsNear(of({-1000, -1000}), expected(-1000 + std::log(2.0f))));
  EXPECT_TRUE(TensorsNear(of({-kInfinity, -kInfinity}), expected(-kInfinity)));
  EXPECT_TRUE(TensorsNear(of({kInfinity, 1, kInfinity}), expected(kInfinity)));
  EXPECT_TRUE(TensorsNear(of({1, kNan, 3}), expected(kNan)));
}

TEST(ReduceMax, NanStays) {
  for (const char* op : {"ReduceMax", "ReduceMin"}) {
    for (const int64_t at : {0, 7, 20}) {
      std::vector<float> values(21, 1);
      values[at] = kNan;
      const Tensor y = RunOp({.op = op, .inputs = {Floats(values)}})->at(0);
      EXPECT_TRUE(std::isnan(y.data<float>()[0])) << op << " " << at;
    }
  }
}

TEST(ReduceMax, Bools) {
  const Tensor x = Cast(Tensor::Of<float>({2, 2}, {1, 0, 0, 0}), DType::kBool);
  EXPECT_TRUE(ExpectOutputs({.op = "ReduceMax", .inputs = {x, Int64s({1})}},
                            {Cast(Tensor::Of<float>({2, 1}, {1, 0}), DType::kBool)}));
  EXPECT_TRUE(ExpectOutputs({.op = "ReduceMin", .inputs = {x, Int64s({0})}},
                            {Cast(Tensor::Of<float>({1, 2}, {0, 0}), DType::kBool)}));
}

}  // namespace
}  // namespace weft::testing
