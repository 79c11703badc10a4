#include "tensor/shape.h"

#include <limits>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

absl::Status CreateStatus(std::vector<int64_t> dims) { return Shape::Create(dims).status(); }

TEST(ShapeTest, ScalarHasOneElement) {
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ(Shape{}.num_elements(), 1);
  EXPECT_EQ(Shape{}.ToString(), "[]");
  EXPECT_TRUE(Shape{}.Strides().empty());
}

TEST(ShapeTest, StridesAreRowMajor) {
  const Shape shape{2, 3, 4};
  EXPECT_THAT(shape.Strides(), ElementsAre(12, 4, 1));
  EXPECT_EQ(shape.num_elements(), 24);
  EXPECT_EQ(shape.ProductOf(1, 3), 12);
  EXPECT_EQ(shape.ProductOf(1, 1), 1);
  EXPECT_EQ(shape.ToString(), "[2,3,4]");
}

TEST(ShapeTest, CreateTakesUsualShapes) {
  const std::vector<int64_t> dims = {0, 5, kMaxDim};
  const absl::StatusOr<Shape> shape = Shape::Create(dims);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(*shape, (Shape{0, 5, kMaxDim}));
  EXPECT_EQ(shape->num_elements(), 0);
  EXPECT_TRUE(CreateStatus({}).ok());
  EXPECT_TRUE(CreateStatus(std::vector<int64_t>(kMaxRank, 1)).ok());
}

TEST(ShapeTest, CreateRefusesHostileDimensions) {
  EXPECT_EQ(CreateStatus({2, -1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(CreateStatus({2, -1}).message(), HasSubstr("dimension 1 of shape [2,-1]"));
  EXPECT_THAT(CreateStatus({kMaxDim + 1}).message(), HasSubstr("must be in 0..1099511627776"));
  EXPECT_FALSE(CreateStatus({std::numeric_limits<int64_t>::min()}).ok());
  EXPECT_FALSE(CreateStatus({kMaxInt64}).ok());
}

TEST(ShapeTest, CreateRefusesTooManyElements) {
  EXPECT_THAT(CreateStatus({kMaxDim, kMaxDim}).message(), HasSubstr("more than 2^63-1 elements"));
  // A zero does not hide it: the strides would not fit.
  EXPECT_FALSE(CreateStatus({0, kMaxDim, kMaxDim}).ok());
  EXPECT_FALSE(CreateStatus({kMaxDim, kMaxDim, 0}).ok());
  EXPECT_TRUE(CreateStatus({kMaxDim, (int64_t{1} << 22)}).ok());
}

TEST(ShapeTest, CreateRefusesTooHighRanks) {
  const absl::Status status = CreateStatus(std::vector<int64_t>(kMaxRank + 1, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("17 dimensions; at most 16"));
}

TEST(ShapeTest, UncheckedProductsSaturate) {
  const Shape shape{kMaxInt64, kMaxInt64, 2};
  EXPECT_EQ(shape.num_elements(), kMaxInt64);
  EXPECT_EQ(shape.Strides()[0], kMaxInt64);
  EXPECT_EQ((Shape{kMaxInt64, kMaxInt64, 0}).num_elements(), 0);
}

TEST(ShapeTest, HashAgreesWithEquality) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Shape{}, Shape{0}, Shape{1}, Shape{1, 1}, Shape{2, 3}, Shape{3, 2}}));
}

TEST(NormalizeAxisTest, CountsNegativeAxesFromTheEnd) {
  EXPECT_EQ(*NormalizeAxis(-1, 3), 2);
  EXPECT_EQ(*NormalizeAxis(-3, 3), 0);
  EXPECT_EQ(*NormalizeAxis(2, 3), 2);
}

TEST(NormalizeAxisTest, RefusesAxesOutsideTheRank) {
  EXPECT_EQ(NormalizeAxis(3, 3).status().message(), "axis 3 is outside [-3, 3) of rank 3");
  EXPECT_FALSE(NormalizeAxis(-4, 3).ok());
  EXPECT_FALSE(NormalizeAxis(0, 0).ok());
  EXPECT_FALSE(NormalizeAxis(int64_t{1} << 32, 3).ok());
  EXPECT_FALSE(NormalizeAxis(std::numeric_limits<int64_t>::min(), 3).ok());
}

TEST(DimTest, EqualOnlyWhenCertain) {
  EXPECT_EQ(Dim(3), Dim(3));
  EXPECT_EQ(Dim::Symbol("batch"), Dim::Symbol("batch"));
  EXPECT_FALSE(Dim() == Dim());
  EXPECT_FALSE(Dim::Symbol("batch") == Dim::Symbol("length"));
  EXPECT_FALSE(Dim::Symbol("batch") == Dim(3));
}

TEST(SymbolicShapeTest, PrintsSizesSymbolsAndUnknowns) {
  EXPECT_EQ(SymbolicShape({Dim::Symbol("batch"), Dim(3), Dim()}).ToString(), "[batch,3,?]");
  EXPECT_EQ(SymbolicShape().ToString(), "unknown rank");
  EXPECT_EQ(SymbolicShape(Shape{}).ToString(), "[]");
}

TEST(SymbolicShapeTest, IsConcreteOnceAllIsBound) {
  const SymbolicShape shape({Dim::Symbol("batch"), Dim(3), Dim::Symbol("length")});
  EXPECT_EQ(shape.ToConcrete(), std::nullopt);
  EXPECT_FALSE(shape.is_concrete());
  EXPECT_FALSE(SymbolicShape().is_concrete());
  EXPECT_EQ(shape.Bind({{"batch", 8}}).ToString(), "[8,3,length]");
  EXPECT_EQ(shape.Bind({{"batch", 8}, {"length", 5}, {"other", 1}}).ToConcrete(), (Shape{8, 3, 5}));
  EXPECT_EQ(SymbolicShape({Dim()}).Bind({{"", 4}}).ToConcrete(), std::nullopt);
  EXPECT_FALSE(SymbolicShape().Bind({{"batch", 8}}).has_rank());
}

TEST(SymbolicShapeTest, ComesFromAConcreteShape) {
  const SymbolicShape shape(Shape{2, 3});
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape.ToConcrete(), (Shape{2, 3}));
  EXPECT_TRUE(shape.is_concrete());
}

}  // namespace
}  // namespace weft
