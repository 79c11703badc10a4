#include "ops/kernels/cuda/linear/batched_product.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

MatrixProductSpec Dense(int64_t m, int64_t k, int64_t n, bool trans_a = false,
                        bool trans_b = false) {
  MatrixProductSpec spec;
  spec.m = m;
  spec.n = n;
  spec.k = k;
  spec.trans_a = trans_a;
  spec.trans_b = trans_b;
  spec.a_row = trans_a ? m : k;
  spec.b_row = trans_b ? k : n;
  spec.y_row = n;
  return spec;
}

// Keeps what it is asked, and has no algorithm.
class ListeningBlasLt final : public BlasLt {
 public:
  absl::StatusOr<std::unique_ptr<PreparedProduct>> Prepare(const MatrixProductSpec& spec) override {
    asked = spec;
    return absl::UnimplementedError("listens only");
  }
  MatrixProductSpec asked;
};

TEST(SimplifiedTest, DropsAxesOfSizeOneAndMergesNeighbours) {
  const BatchedProductSpec simple =
      Simplified({Dense(2, 3, 5), {{4, 18, 45, 30}, {1, 0, 0, 0}, {3, 6, 15, 10}}});
  ASSERT_EQ(simple.axes.size(), 1);
  EXPECT_EQ(simple.axes[0].size, 12);
  EXPECT_EQ(simple.axes[0].a, 6);
  EXPECT_EQ(simple.axes[0].b, 15);
  EXPECT_EQ(simple.axes[0].y, 10);
}

TEST(SimplifiedTest, KeepsNeighboursApartThatBroadcastOtherwise) {
  const BatchedProductSpec simple = Simplified({Dense(2, 3, 5), {{4, 0, 15, 30}, {3, 6, 0, 10}}});
  // The inner axis became rows: B is the same along it.
  ASSERT_EQ(simple.axes.size(), 1);
  EXPECT_EQ(simple.matrix.m, 6);
  EXPECT_EQ(simple.axes[0].size, 4);
}

TEST(SimplifiedTest, DoesNotFoldRowsOfATransposedA) {
  const BatchedProductSpec simple = Simplified({Dense(2, 3, 5, true), {{4, 6, 0, 10}}});
  EXPECT_EQ(simple.matrix.m, 2);
  EXPECT_EQ(simple.axes.size(), 1);
}

TEST(SimplifiedTest, StoresVectorsAsRows) {
  const MatrixProductSpec column = Simplified({Dense(2, 3, 1), {}}).matrix;
  EXPECT_TRUE(column.trans_b);
  EXPECT_EQ(column.b_row, 3);
  const MatrixProductSpec row = Simplified({Dense(1, 3, 5, true), {}}).matrix;
  EXPECT_FALSE(row.trans_a);
  EXPECT_EQ(row.a_row, 3);
  // Columns of a wider matrix stay where they are.
  MatrixProductSpec strided = Dense(2, 3, 1);
  strided.b_row = 7;
  EXPECT_FALSE(Simplified({strided, {}}).matrix.trans_b);
}

TEST(BatchedProductTest, GivesTheLargestAxisToTheLibrary) {
  ListeningBlasLt library;
  MatrixProductSpec matrix = Dense(2, 3, 5);
  matrix.trans_a = true;
  matrix.a_row = 2;
  const auto product = BatchedProduct::Create(library, {matrix, {{3, 6, 0, 70}, {7, 0, 15, 10}}});
  EXPECT_TRUE(absl::IsUnimplemented(product.status()));
  EXPECT_EQ(library.asked.batches, 7);
  EXPECT_EQ(library.asked.a_batch, 0);
  EXPECT_EQ(library.asked.b_batch, 15);
  EXPECT_EQ(library.asked.y_batch, 10);
  // A steps by 24 bytes from call to call, Y by 280, B not at all.
  EXPECT_EQ(library.asked.a_alignment, 8);
  EXPECT_EQ(library.asked.b_alignment, 64);
  EXPECT_EQ(library.asked.y_alignment, 8);
}

TEST(CheckProductTest, NamesWhatNoProductCanHave) {
  EXPECT_TRUE(CheckProduct(Dense(2, 3, 5)).ok());
  MatrixProductSpec spec = Dense(2, 3, 5);
  spec.b_row = 4;
  EXPECT_EQ(CheckProduct(spec).message(),
            "a matrix product float32 1 x [2,3] [3,5] cannot have rows of B that overlap");
  spec = Dense(2, 3, 5);
  spec.dtype = DType::kInt32;
  EXPECT_TRUE(absl::IsInternal(CheckProduct(spec)));
  spec = Dense(2, 3, 5);
  spec.dtype = DType::kFloat16;
  EXPECT_TRUE(CheckProduct(spec).ok()) << "float32 sums of float16";
  spec.has_bias = true;
  EXPECT_TRUE(absl::IsInternal(CheckProduct(spec)));
  spec = Dense(2, 3, 5);
  spec.batches = 2;
  EXPECT_TRUE(absl::IsInternal(CheckProduct(spec))) << "matrices of Y would overlap";
  spec = Dense(int64_t{1} << 31, 1, 1);
  EXPECT_TRUE(absl::IsUnimplemented(CheckProduct(spec)));
}

TEST(CheckProductTest, NamesEpiloguesThatTheLibraryLacks) {
  const auto with = [](const auto& change, MatrixProductSpec spec = Dense(2, 3, 8)) {
    spec.y_dtype = spec.dtype = DType::kBfloat16;
    change(spec);
    return CheckProduct(spec);
  };
  const auto gelu = [](MatrixProductSpec& spec) { spec.epilogue = ProductEpilogue::kTanhGelu; };
  const auto gelu_with_operand = [&](MatrixProductSpec& spec) {
    gelu(spec);
    spec.has_aux = true;
  };
  EXPECT_TRUE(with(gelu).ok());
  EXPECT_TRUE(with(gelu_with_operand).ok());
  EXPECT_EQ(
      with(gelu_with_operand, Dense(2, 3, 5)).message(),
      "a matrix product bfloat16 1 x [2,3] [3,5], tanh gelu with its operand cannot have rows "
      "of Aux that begin at odd places");
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {  // results wider than operands too
    EXPECT_TRUE(absl::IsInternal(with([&](MatrixProductSpec& spec) {
      gelu(spec);
      spec.y_dtype = dtype;
      if (dtype == DType::kFloat64) spec.dtype = dtype;
    })));
  }
  EXPECT_TRUE(absl::IsInternal(with([](MatrixProductSpec& spec) { spec.has_aux = true; })));
  const auto slope = [](MatrixProductSpec& spec) {
    spec.epilogue = ProductEpilogue::kTanhGeluGrad;
    spec.has_aux = true;
  };
  EXPECT_TRUE(with(slope).ok());
  EXPECT_TRUE(absl::IsInternal(with([&](MatrixProductSpec& spec) {
    slope(spec);
    spec.has_bias = true;
  })));
}

TEST(CheckProductTest, SumsAreThoseOfRows) {
  const auto with = [](SummedOperand sums, bool trans_a, bool trans_b) {
    MatrixProductSpec spec = Dense(2, 3, 8, trans_a, trans_b);
    spec.sums = sums;
    return spec;
  };
  EXPECT_TRUE(CheckProduct(with(SummedOperand::kA, true, false)).ok());
  EXPECT_TRUE(CheckProduct(with(SummedOperand::kB, false, false)).ok());
  EXPECT_TRUE(absl::IsInternal(CheckProduct(with(SummedOperand::kA, false, false))));
  EXPECT_TRUE(absl::IsInternal(CheckProduct(with(SummedOperand::kB, false, true))));
  MatrixProductSpec spec = with(SummedOperand::kB, false, false);
  spec.has_bias = true;
  EXPECT_TRUE(absl::IsInternal(CheckProduct(spec)));
  spec.has_bias = false;
  spec.batches = 2;
  spec.y_batch = 16;
  EXPECT_TRUE(absl::IsInternal(CheckProduct(spec)));
}

}  // namespace
}  // namespace weft::cuda
