#include <span>
#include <string>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase Scattered(const Shape& data, const Shape& indices, int64_t axis,
                 const std::string& reduction, DType dtype = DType::kFloat32) {
  const double size = static_cast<double>(data.dim(static_cast<int>(axis)));
  return {.op = "ScatterElements",
          .attributes = {{"axis", axis}, {"reduction", reduction}},
          .inputs = {RandomTensor(data, 1, -9, 9, dtype),
                     RandomTensor(indices, 2, -size, size, DType::kInt64),
                     RandomTensor(indices, 3, -9, 9, dtype)}};
}

OpCase ScatteredRows(const Shape& data, const Shape& indices, const Shape& updates,
                     const std::string& reduction, DType dtype = DType::kFloat32) {
  return {.op = "ScatterND",
          .attributes = {{"reduction", reduction}},
          .inputs = {RandomTensor(data, 1, -9, 9, dtype),
                     RandomTensor(indices, 2, -2, 2, DType::kInt64),
                     RandomTensor(updates, 3, -9, 9, dtype)}};
}

OpCase GatheredRows(const Shape& data, const Shape& indices, int64_t batch_dims,
                    DType dtype = DType::kFloat32) {
  return {.op = "GatherND",
          .attributes = {{"batch_dims", batch_dims}},
          .inputs = {RandomTensor(data, 1, -9, 9, dtype),
                     RandomTensor(indices, 2, -2, 2, DType::kInt64)}};
}

TEST(ScatterElements, KnownValues) {
  const OpCase op_case{.op = "ScatterElements",
                       .attributes = {{"axis", int64_t{1}}},
                       .inputs = {Tensor::Of<float>({1, 5}, std::vector<float>{1, 2, 3, 4, 5}),
                                  Int64s({1, -2}).Reshaped({1, 2}),
                                  Tensor::Of<float>({1, 2}, std::vector<float>{10, 20})}};
  EXPECT_TRUE(
      ExpectOutputs(op_case, {Tensor::Of<float>({1, 5}, std::vector<float>{1, 10, 3, 20, 5})}));
}

TEST(ScatterElements, AgreesWithTheReferenceInEveryReduction) {
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kInt16, DType::kInt32, DType::kInt64}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Scattered({4, 5, 3}, {4, 3, 2}, 1, reduction, dtype)))
          << reduction << " " << DTypeName(dtype);
    }
    EXPECT_TRUE(CheckKernelAgainstReference(Scattered({3, 4}, {7, 4}, 0, reduction)));
    EXPECT_TRUE(CheckKernelAgainstReference(Scattered({3, 4}, {0, 4}, 0, reduction)));
  }
}

TEST(ScatterElements, MovesEveryWidth) {
  for (const DType dtype : {DType::kBool, DType::kFloat8E4M3Fn, DType::kBfloat16}) {
    OpCase op_case = Scattered({3, 4}, {3, 2}, 1, "none");
    op_case.inputs[0] = Cast(op_case.inputs[0], dtype);
    op_case.inputs[2] = Cast(op_case.inputs[2], dtype);
    EXPECT_TRUE(CheckKernelAgainstReference(op_case)) << DTypeName(dtype);
  }
}

TEST(ScatterElements, Gradients) {
  EXPECT_TRUE(CheckGradient(Scattered({4, 3}, {2, 3}, 0, "add")));
  OpCase distinct = Scattered({2, 4}, {2, 2}, 1, "none");
  distinct.inputs[1] = Int64s({3, 0, -2, 1}).Reshaped({2, 2});
  EXPECT_TRUE(CheckGradient(distinct));
}

TEST(ScatterElements, MisfitsAreNamed) {
  OpCase outside = Scattered({3, 4}, {3, 2}, 1, "add");
  outside.inputs[1].mutable_data<int64_t>()[3] = -5;
  EXPECT_TRUE(ExpectError(outside, absl::StatusCode::kInvalidArgument,
                          {"index -5 at element 3", "[-4, 4) of axis 1"}));
  EXPECT_TRUE(ExpectError(Scattered({3, 4}, {4, 4}, 1, "none"), absl::StatusCode::kInvalidArgument,
                          {"indices [4,4]", "data [3,4]", "axis 1"}));
  EXPECT_TRUE(ExpectError(Scattered({3, 4}, {3, 4}, 1, "mean"), absl::StatusCode::kInvalidArgument,
                          {"reduction is 'mean'"}));
}

TEST(ScatterNd, AgreesWithTheReferenceInEveryReduction) {
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kInt16}) {
      EXPECT_TRUE(
          CheckKernelAgainstReference(ScatteredRows({3, 4, 5}, {6, 2}, {6, 5}, reduction, dtype)))
          << reduction << " " << DTypeName(dtype);
    }
    EXPECT_TRUE(CheckKernelAgainstReference(ScatteredRows({2, 2}, {3, 1, 2}, {3, 1}, reduction)));
    EXPECT_TRUE(CheckKernelAgainstReference(ScatteredRows({2, 3}, {0, 1}, {0, 3}, reduction)));
  }
}

TEST(ScatterNd, Gradients) {
  EXPECT_TRUE(CheckGradient(ScatteredRows({3, 4}, {5, 1}, {5, 4}, "add")));
  OpCase distinct = ScatteredRows({4, 2}, {2, 1}, {2, 2}, "none");
  distinct.inputs[1] = Int64s({3, 0}).Reshaped({2, 1});
  EXPECT_TRUE(CheckGradient(distinct));
}

TEST(ScatterNd, MisfitsAreNamed) {
  OpCase outside = ScatteredRows({3, 4}, {5, 1}, {5, 4}, "none");
  outside.inputs[1].mutable_data<int64_t>()[2] = 3;
  EXPECT_TRUE(ExpectError(outside, absl::StatusCode::kInvalidArgument,
                          {"index 3 (component 0 of tuple 2", "[-3, 3) of axis 0"}));
  EXPECT_TRUE(ExpectError(ScatteredRows({3, 4}, {5, 3}, {5}, "none"),
                          absl::StatusCode::kInvalidArgument, {"indices [5,3]", "data [3,4]"}));
  EXPECT_TRUE(ExpectError(ScatteredRows({3, 4}, {5, 1}, {5, 3}, "none"),
                          absl::StatusCode::kInvalidArgument, {"updates [5,3]", "expected [5,4]"}));
}

TEST(GatherNd, AgreesWithTheReference) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8, DType::kUint64}) {
    EXPECT_TRUE(CheckKernelAgainstReference(GatheredRows({3, 4, 5}, {6, 2}, 0, dtype)));
    EXPECT_TRUE(CheckKernelAgainstReference(GatheredRows({2, 3, 4, 5}, {2, 3, 7, 1}, 2, dtype)));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(GatheredRows({2, 3}, {2, 2, 1}, 1)));
  EXPECT_TRUE(CheckKernelAgainstReference(GatheredRows({3, 2}, {2}, 0)));
  EXPECT_TRUE(CheckKernelAgainstReference(GatheredRows({3, 2}, {0, 1}, 0)));
}

TEST(GatherNd, Gradients) {
  EXPECT_TRUE(CheckGradient(GatheredRows({3, 4}, {5, 1}, 0)));
  EXPECT_TRUE(CheckGradient(GatheredRows({2, 3, 2}, {2, 4, 1}, 1)));
}

TEST(GatherNd, MisfitsAreNamed) {
  EXPECT_TRUE(ExpectError(GatheredRows({3, 4}, {5, 3}, 0), absl::StatusCode::kInvalidArgument,
                          {"indices [5,3]", "data [3,4]"}));
  EXPECT_TRUE(ExpectError(GatheredRows({3, 4}, {5, 1}, 1), absl::StatusCode::kInvalidArgument,
                          {"batch axis 0 differs", "[3,4]", "[5,1]"}));
}

// ---- TensorScatter: against a walk over every element.

Tensor Written(const Tensor& cache, const Tensor& update, const std::vector<int64_t>& starts) {
  const Shape& shape = cache.shape();  // [B, D, S, E]
  const std::vector<float> from(update.data<float>().begin(), update.data<float>().end());
  std::vector<float> out(cache.data<float>().begin(), cache.data<float>().end());
  const int64_t positions = update.shape().dim(2);
  for (int64_t i = 0; i < update.num_elements(); ++i) {
    const int64_t e = i % shape.dim(3);
    const int64_t s = i / shape.dim(3) % positions;
    const int64_t row = i / shape.dim(3) / positions;
    const int64_t to = (starts[row / shape.dim(1)] + s) % shape.dim(2);
    out[(row * shape.dim(2) + to) * shape.dim(3) + e] = from[i];
  }
  return Tensor::Of<float>(shape, out);
}

TEST(TensorScatter, WritesAtEverySamplesPosition) {
  OpCase op_case{
      .op = "TensorScatter",
      .attributes = {{"mode", std::string("circular")}},
      .inputs = {RandomTensor({2, 3, 5, 4}, 1), RandomTensor({2, 3, 2, 4}, 2), Int64s({4, 1})}};
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear((*outputs)[0], Written(op_case.inputs[0], op_case.inputs[1], {4, 1})));
  op_case.attributes = Attributes();
  op_case.inputs[2] = Int64s({3, 0});
  const auto linear = RunOp(op_case);
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_TRUE(TensorsNear((*linear)[0], Written(op_case.inputs[0], op_case.inputs[1], {3, 0})));
}

TEST(TensorScatter, MovesElementsSmallerThanAByte) {
  OpCase op_case{.op = "TensorScatter",
                 .inputs = {RandomTensor({1, 5, 3}, 1, -8, 8, DType::kInt8),
                            RandomTensor({1, 2, 3}, 2, -8, 8, DType::kInt8), Int64s({1})}};
  const auto bytes = RunOp(op_case);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const DType dtype : {DType::kInt4, DType::kFloat6E3M2}) {
    OpCase packed_case = op_case;
    for (Tensor& input : std::span(packed_case.inputs).first(2)) input = Cast(input, dtype);
    const auto packed = RunOp(packed_case);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ((*packed)[0].dtype(), dtype);
    EXPECT_EQ(*ToInt64s((*packed)[0]), *ToInt64s((*bytes)[0]));
  }
}

TEST(TensorScatter, PositionsPastTheEndAreNamed) {
  const OpCase op_case{
      .op = "TensorScatter",
      .inputs = {RandomTensor({2, 5, 4}, 1), RandomTensor({2, 2, 4}, 2), Int64s({3, 4})}};
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"write index at [1] is 4", "2 positions to write into 5"}));
}

}  // namespace
}  // namespace weft::testing
