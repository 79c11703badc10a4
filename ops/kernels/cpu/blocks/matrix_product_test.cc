#include "ops/kernels/cpu/blocks/matrix_product.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::cpu {
namespace {

using weft::testing::OpCase;
using weft::testing::RandomTensor;

// A node of the given operands, as a program sees it.
class NodeOf final : public PrepareContext {
 public:
  NodeOf(std::vector<Tensor> inputs, int threads, bool constant)
      : case_{.op = "Gemm", .inputs = std::move(inputs)},
        single_(weft::testing::MakeSingleNodeGraph(case_)),
        threads_(threads),
        constant_(constant) {}
  const Node& node() const override { return single_.graph->node(single_.node); }
  const Shape& InputShape(int i) const override { return case_.inputs[i].shape(); }
  const Shape& OutputShape(int) const override { return case_.inputs[0].shape(); }
  DType InputDType(int) const override { return DType::kFloat32; }
  DType OutputDType(int) const override { return DType::kFloat32; }
  const Tensor* InputValue(int) const override { return nullptr; }
  const OperandSlice& InputSlice(int) const override { return slice_; }
  const OperandSlice& OutputSlice(int) const override { return slice_; }
  Device& device() const override { std::abort(); }
  int threads() const override { return threads_; }
  bool strict() const override { return false; }
  bool InputIsConstant(int i) const override { return constant_ && i == 1; }

 private:
  const OpCase case_;
  const weft::testing::SingleNodeGraph single_;
  const int threads_;
  const bool constant_;
  const OperandSlice slice_;
};

struct Run {
  ProductBy by = ProductBy::kFastest;
  int threads = 1;
  bool constant = false;
};

Shape WithMatrix(Shape batch, int64_t rows, int64_t columns) {
  batch.AddDim(rows);
  batch.AddDim(columns);
  return batch;
}

std::vector<Tensor> OperandsOf(const MatrixProduct& p) {
  std::vector<Tensor> operands = {
      RandomTensor(WithMatrix(p.a_batch, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k), 1),
      RandomTensor(WithMatrix(p.b_batch, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n), 2)};
  if (p.has_c) operands.push_back(RandomTensor({p.m, p.n}, 3));
  return operands;
}

// Y of the second run, which finds constants packed.
Tensor Multiply(const MatrixProduct& product, const std::vector<Tensor>& operands, const Run& run) {
  const NodeOf node(operands, run.threads, run.constant);
  auto kernel = PrepareMatrixProduct(node, product, run.by);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  Tensor y = *Tensor::Zeros(DType::kFloat32, WithMatrix(product.batch(), product.m, product.n));
  const Tensor workspace =
      *Tensor::Zeros(DType::kUint8, Shape{static_cast<int64_t>((*kernel)->workspace_bytes())});
  std::vector<const void*> inputs;
  for (const Tensor& operand : operands) inputs.push_back(operand.raw_data());
  void* const output = y.raw_data();
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = &output;
  context.workspace = workspace.raw_data();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE((*kernel)->Run(context).ok());
  return y;
}

// The flat index of the matrix that is matrix `flat` of `batch`, in an operand with axes `own`.
int64_t MatrixOf(const Shape& own, const Shape& batch, int64_t flat) {
  int64_t index = 0;
  int64_t stride = 1;
  for (int d = batch.rank() - 1; d >= 0; --d) {
    if (own.dim(d) != 1) index += flat % batch.dim(d) * stride;
    flat /= batch.dim(d);
    stride *= own.dim(d);
  }
  return index;
}

void ExpectNearLoops(const MatrixProduct& p, const std::vector<Tensor>& operands,
                     const Tensor& actual) {
  const auto a = operands[0].data<float>();
  const auto b = operands[1].data<float>();
  const auto y = actual.data<float>();
  const Shape batch = p.batch();
  for (int64_t matrix = 0; matrix < batch.num_elements(); ++matrix) {
    const float* const a_matrix = a.data() + MatrixOf(p.a_batch, batch, matrix) * p.m * p.k;
    const float* const b_matrix = b.data() + MatrixOf(p.b_batch, batch, matrix) * p.k * p.n;
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += static_cast<double>(a_matrix[p.trans_a ? k * p.m + i : i * p.k + k]) *
                 static_cast<double>(b_matrix[p.trans_b ? j * p.k + k : k * p.n + j]);
        }
        sum *= static_cast<double>(p.alpha);
        if (p.has_c) {
          const auto c = operands[2].data<float>();
          sum += static_cast<double>(p.beta * c[i * p.c_row_stride + j * p.c_column_stride]);
        }
        ASSERT_NEAR(y[(matrix * p.m + i) * p.n + j], sum, 2e-4) << matrix << ": " << i << ", " << j;
      }
    }
  }
}

void ExpectNearLoops(const MatrixProduct& product) {
  const std::vector<Tensor> operands = OperandsOf(product);
  for (const ProductBy by : {ProductBy::kFastest, ProductBy::kOnednn, ProductBy::kPacked}) {
    for (const int threads : {1, 2, 3}) {
      for (const bool constant : {false, true}) {
        SCOPED_TRACE(absl::StrCat("by ", static_cast<int>(by), " on ", threads, " threads",
                                  constant ? " constant" : ""));
        const Run run{.by = by, .threads = threads, .constant = constant};
        ExpectNearLoops(product, operands, Multiply(product, operands, run));
      }
    }
  }
}

TEST(MatrixProductTest, IsThatOfLoopsInAllOrders) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      ExpectNearLoops({.a_batch = {},
                       .b_batch = {},
                       .m = 5,
                       .n = 7,
                       .k = 3,
                       .trans_a = trans_a,
                       .trans_b = trans_b});
      ExpectNearLoops({.a_batch = {},
                       .b_batch = {},
                       .m = 70,
                       .n = 300,
                       .k = 290,
                       .trans_a = trans_a,
                       .trans_b = trans_b});
      ExpectNearLoops({.a_batch = {},
                       .b_batch = {},
                       .m = 1,
                       .n = 260,
                       .k = 270,
                       .trans_a = trans_a,
                       .trans_b = trans_b});
      ExpectNearLoops({.a_batch = {},
                       .b_batch = {},
                       .m = 260,
                       .n = 1,
                       .k = 270,
                       .trans_a = trans_a,
                       .trans_b = trans_b});
    }
  }
}

TEST(MatrixProductTest, BatchesBroadcast) {
  const auto batched = [](Shape a, Shape b, int64_t m, int64_t n, int64_t k) {
    ExpectNearLoops({.a_batch = a, .b_batch = b, .m = m, .n = n, .k = k});
    ExpectNearLoops({.a_batch = a, .b_batch = b, .m = m, .n = n, .k = k, .trans_a = true});
  };
  batched({6}, {6}, 9, 17, 5);
  batched({2, 3}, {2, 1}, 9, 17, 5);
  batched({1, 3}, {4, 1}, 3, 2, 5);
  batched({3}, {1}, 20, 30, 40);
  batched({3}, {3}, 150, 160, 130);  // few and large: threads share each
}

TEST(MatrixProductTest, AddsCOfAllShapes) {
  for (const float beta : {1.0f, 0.5f}) {
    for (const float alpha : {1.0f, 2.0f}) {
      for (const int64_t row_stride : {0, 1, 33}) {
        for (const int64_t column_stride : {0, 1}) {
          ExpectNearLoops({.a_batch = {},
                           .b_batch = {},
                           .m = 31,
                           .n = 33,
                           .k = 17,
                           .alpha = alpha,
                           .beta = beta,
                           .has_c = true,
                           .c_row_stride = row_stride,
                           .c_column_stride = column_stride});
        }
      }
    }
  }
}

// Bits of a row: of all rows, and of some of them on any number of threads.
TEST(MatrixProductTest, PackedRowsHaveTheirBitsWhateverTheSplit) {
  for (const bool trans_b : {false, true}) {
    const MatrixProduct all{
        .a_batch = {}, .b_batch = {}, .m = 96, .n = 130, .k = 520, .trans_b = trans_b};
    const std::vector<Tensor> operands = OperandsOf(all);
    const Tensor whole = Multiply(all, operands, {.by = ProductBy::kPacked});
    for (const int64_t rows : {1, 3, 8, 32, 48, 96}) {
      for (const int threads : {1, 2}) {
        for (int64_t first = 0; first < all.m; first += rows) {
          MatrixProduct some = all;
          some.m = rows;
          Tensor a = *Tensor::Zeros(DType::kFloat32, {rows, all.k});
          const size_t a_row = static_cast<size_t>(all.k) * sizeof(float);
          std::memcpy(a.raw_data(), static_cast<char*>(operands[0].raw_data()) + first * a_row,
                      static_cast<size_t>(rows) * a_row);
          const Tensor part =
              Multiply(some, {a, operands[1]}, {.by = ProductBy::kPacked, .threads = threads});
          const size_t y_row = static_cast<size_t>(all.n) * sizeof(float);
          ASSERT_EQ(
              std::memcmp(part.raw_data(), static_cast<char*>(whole.raw_data()) + first * y_row,
                          static_cast<size_t>(rows) * y_row),
              0)
              << rows << " rows from " << first << " on " << threads << " threads";
        }
      }
    }
  }
}

TEST(MatrixProductTest, PackedRunsHaveTheBitsOfConstants) {
  const MatrixProduct product{.a_batch = {}, .b_batch = {}, .m = 40, .n = 100, .k = 300};
  const std::vector<Tensor> operands = OperandsOf(product);
  const Tensor plain = Multiply(product, operands, {.by = ProductBy::kPacked});
  const Tensor packed = Multiply(product, operands, {.by = ProductBy::kPacked, .constant = true});
  EXPECT_EQ(std::memcmp(plain.raw_data(), packed.raw_data(), 40 * 100 * sizeof(float)), 0);
}

}  // namespace
}  // namespace weft::cpu
