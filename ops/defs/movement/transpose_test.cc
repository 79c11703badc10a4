#include <numeric>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::CheckGradient;
using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::OpCase;
using testing::RandomTensor;

// output[i0, i1, ...] = input at the index whose axis perm[k] is ik.
template <typename T>
Tensor NaiveTranspose(const Tensor& input, const std::vector<int64_t>& perm) {
  Shape shape;
  for (const int64_t axis : perm) shape.AddDim(input.shape().dim(static_cast<int>(axis)));
  const auto strides = input.shape().Strides();
  std::vector<T> values(shape.num_elements());
  for (int64_t flat = 0; flat < static_cast<int64_t>(values.size()); ++flat) {
    int64_t rest = flat;
    int64_t from = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      from += rest % shape.dim(axis) * strides[perm[axis]];
      rest /= shape.dim(axis);
    }
    values[flat] = input.data<T>()[from];
  }
  return Tensor::Of<T>(shape, values);
}

template <typename T>
::testing::AssertionResult CheckTranspose(Shape shape, const std::vector<int64_t>& perm) {
  const OpCase op_case{.op = "Transpose",
                       .attributes = {{"perm", perm}},
                       .inputs = {RandomTensor(shape, 1, -100, 100, DTypeOf<T>::value)}};
  return ExpectOutputs(op_case, {NaiveTranspose<T>(op_case.inputs[0], perm)}, {.of_magnitude = 0});
}

TEST(TransposeTest, EveryPermutationOfFourAxes) {
  std::vector<int64_t> perm(4);
  std::iota(perm.begin(), perm.end(), 0);
  do {
    EXPECT_TRUE(CheckTranspose<float>({5, 3, 2, 7}, perm));
    EXPECT_TRUE(CheckTranspose<int8_t>({2, 17, 1, 4}, perm));
    EXPECT_TRUE(CheckTranspose<double>({3, 1, 9, 2}, perm));
    EXPECT_TRUE(CheckTranspose<int16_t>({1, 6, 5, 4}, perm));
  } while (std::next_permutation(perm.begin(), perm.end()));
}

TEST(TransposeTest, MatricesOfAllSizesAroundTheTiles) {
  for (const int64_t rows : {1, 15, 16, 17, 63, 65}) {
    for (const int64_t columns : {1, 4, 16, 33, 64, 130}) {
      EXPECT_TRUE(CheckTranspose<float>({rows, columns}, {1, 0}));
      EXPECT_TRUE(CheckTranspose<uint8_t>({rows, columns}, {1, 0}));
      EXPECT_TRUE(CheckTranspose<int64_t>({rows, columns}, {1, 0}));
    }
  }
}

// Large enough that several threads share the work.
TEST(TransposeTest, LargeTensorsOnSeveralThreads) {
  EXPECT_TRUE(CheckTranspose<float>({8, 64, 4, 32}, {0, 2, 1, 3}));
  EXPECT_TRUE(CheckTranspose<float>({8, 64, 4, 32}, {0, 2, 3, 1}));
  EXPECT_TRUE(CheckTranspose<float>({2, 3, 300, 200}, {0, 2, 3, 1}));
  EXPECT_TRUE(CheckTranspose<float>({300, 513}, {1, 0}));
  EXPECT_TRUE(CheckTranspose<float>({513, 300}, {1, 0}));
}

TEST(TransposeTest, ReversesTheAxesByDefault) {
  const OpCase op_case{.op = "Transpose", .inputs = {RandomTensor({2, 3, 4}, 1)}};
  EXPECT_TRUE(ExpectOutputs(op_case, {NaiveTranspose<float>(op_case.inputs[0], {2, 1, 0})}));
}

TEST(TransposeTest, TensorsWithoutElementsAndScalars) {
  EXPECT_TRUE(CheckTranspose<float>({3, 0, 2}, {2, 0, 1}));
  EXPECT_TRUE(CheckTranspose<float>({}, {}));
}

TEST(TransposeTest, MovesElementsSmallerThanAByte) {
  OpCase op_case{.op = "Transpose",
                 .attributes = {{"perm", std::vector<int64_t>{2, 0, 1}}},
                 .inputs = {RandomTensor({3, 5, 3}, 1, 0, 4, DType::kInt8)}};
  const auto bytes = testing::RunOp(op_case);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const DType dtype : {DType::kUint4, DType::kInt4, DType::kFloat6E2M3}) {
    OpCase packed_case = op_case;
    packed_case.inputs[0] = *CastTensor(op_case.inputs[0], dtype);
    const auto packed = testing::RunOp(packed_case);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ((*packed)[0].dtype(), dtype);
    EXPECT_EQ(*ToInt64s((*packed)[0]), *ToInt64s((*bytes)[0]));
  }
}

TEST(TransposeTest, RefusesWhatIsNoPermutation) {
  OpCase op_case{.op = "Transpose",
                 .attributes = {{"perm", std::vector<int64_t>{0, 0}}},
                 .inputs = {RandomTensor({2, 3}, 1)}};
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"perm [0,0] must name each of the 2 axes of [2,3] once"}));
}

TEST(TransposeTest, GradientAndSharding) {
  OpCase op_case{.op = "Transpose", .inputs = {RandomTensor({2, 3, 4}, 1)}};
  EXPECT_TRUE(CheckGradient(op_case));
  op_case.attributes.Set("perm", std::vector<int64_t>{1, 2, 0});
  EXPECT_TRUE(CheckGradient(op_case));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 6}));
}

}  // namespace
}  // namespace weft
