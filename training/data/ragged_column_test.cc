#include "training/data/ragged_column.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::vector<int64_t>;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

SharedBytes Tokens(const std::vector<uint16_t>& tokens) {
  auto owner = std::make_shared<const std::vector<uint16_t>>(tokens);
  return {std::as_bytes(std::span<const uint16_t>(*owner)), owner, /*is_mapped=*/false};
}

ColumnInfo Source() {
  ColumnInfo info;
  info.source = "/d";
  return info;
}

// Rows of a column of integers.
std::vector<Row> Rows(const DataColumn& column) {
  EXPECT_EQ(column.dtype(), DType::kInt64);
  std::vector<Row> rows;
  for (int64_t row = 0; row < column.samples(); ++row) {
    rows.emplace_back(static_cast<size_t>(column.sample_elements()), -1);
    EXPECT_TRUE(column.Read(row, rows.back().data()).ok());
  }
  return rows;
}

absl::StatusOr<std::unique_ptr<DataColumn>> Column(const std::vector<uint16_t>& tokens, bool next,
                                                   const Padding& padding) {
  return NewRaggedColumn(Source(), SplitDocuments(Tokens(tokens), DType::kUint16, 0, next),
                         padding);
}

// Three documents, an empty one between them; the last has no end.
const std::vector<uint16_t>& Documents() {
  static const auto* const kDocuments = new std::vector<uint16_t>{7, 65535, 9, 0, 0, 5, 0, 3, 4};
  return *kDocuments;
}

TEST(RaggedColumnTest, ADocumentIsASampleWithoutItsEnd) {
  const auto column = Column(Documents(), /*next=*/false, {{4}, 1});
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_THAT(Rows(**column), ElementsAre(Row{7, 65535, 9, 1}, Row{5, 1, 1, 1}, Row{3, 4, 1, 1}));
  EXPECT_THAT(*(*column)->info().lengths, ElementsAre(3, 1, 2));
  EXPECT_FALSE((*column)->info().is_amount);
}

TEST(RaggedColumnTest, NextTokensEndWithTheEnd) {
  const auto column = Column(Documents(), /*next=*/true, {{4}, -100});
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_THAT(Rows(**column), ElementsAre(Row{65535, 9, 0, -100}, Row{0, -100, -100, -100},
                                          Row{4, -100, -100, -100}));
}

TEST(RaggedColumnTest, ASampleThatIsTooLongIsNamedOrCut) {
  EXPECT_EQ(Message(Column(Documents(), false, {{1, 2}, 0}).status()),
            "data file '/d': sample 0 has 3 elements, more than the 2 that it is padded to; give "
            "more, or :cut to lose the rest");
  const auto column = Column(Documents(), false, {{1, 2}, 0, /*cut=*/true});
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_THAT(Rows(**column), ElementsAre(Row{7, 65535}, Row{5, 0}, Row{3, 4}));
  EXPECT_THAT(*(*column)->info().lengths, ElementsAre(2, 1, 2));
}

TEST(RaggedColumnTest, DifferentLengthsWantPadding) {
  EXPECT_EQ(Message(Column(Documents(), false, {}).status()),
            "data file '/d': sample 1 has 1 elements, the first has 3; --pad INPUT=N makes all N "
            "long");
  const auto equal = Column({1, 2, 0, 3, 4, 0}, false, {});
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_THAT(Rows(**equal), ElementsAre(Row{1, 2}, Row{3, 4}));
}

TEST(RaggedColumnTest, NothingButEndsIsNoSample) {
  EXPECT_THAT(Message(Column({0, 0}, false, {{4}}).status()), HasSubstr("there is no sample"));
  EXPECT_THAT(Message(Column({}, true, {{4}}).status()), HasSubstr("there is no sample"));
}

TEST(RaggedColumnTest, ThePaddingMustBeAValueOfTheElements) {
  EXPECT_THAT(Message(Column({1, 0}, false, {{4}, 0.5}).status()),
              HasSubstr("padded with 0.5, which its integers cannot be"));
}

TEST(RaggedColumnTest, FloatsAreKept) {
  const Tensor values = Tensor::Of<double>({3}, {0.5, -2, 1.25});
  const auto column = NewRaggedColumn(Source(), ListsOfEnds(values, {1, 1, 3}), {{2}, 0.75});
  ASSERT_TRUE(column.ok()) << column.status();
  ASSERT_EQ((*column)->dtype(), DType::kFloat64);
  std::vector<std::vector<double>> rows;
  for (int64_t row = 0; row < 3; ++row) {
    rows.emplace_back(2);
    ASSERT_TRUE((*column)->Read(row, rows.back().data()).ok());
  }
  EXPECT_THAT(rows,
              ElementsAre(ElementsAre(0.5, 0.75), ElementsAre(0.75, 0.75), ElementsAre(-2, 1.25)));
}

TEST(RaggedColumnTest, AMaskTellsElementsFromPadding) {
  const auto column = Column(Documents(), false, {{2, 4}, 9});
  ASSERT_TRUE(column.ok()) << column.status();
  const auto mask = NewMaskColumn(**column);
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_THAT(Rows(**mask), ElementsAre(Row{1, 1, 1, 0}, Row{1, 0, 0, 0}, Row{1, 1, 0, 0}));
  const auto plain = NewTensorColumn(Source(), Tensor::Of<int64_t>({2}, {1, 2}));
  EXPECT_THAT(Message(NewMaskColumn(*plain).status()), HasSubstr("its samples are not padded"));
}

}  // namespace
}  // namespace weft
