#include "training/data/csv_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kIris[] =
    "length,width,species\n"
    "5.1,3.5,setosa\n"
    "7,3.2,virginica\n"
    "4.9,3,setosa\n";

std::vector<std::vector<std::string>> Rows(const std::string& text, char delimiter = ',') {
  CsvScanner scanner(text, delimiter, "f.csv");
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> cells;
  while (true) {
    const auto more = scanner.Next(cells);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return rows;
    rows.push_back(cells);
  }
}

std::string ScanError(const std::string& text) {
  CsvScanner scanner(text, ',', "f.csv");
  std::vector<std::string> cells;
  while (true) {
    const auto more = scanner.Next(cells);
    if (!more.ok()) return std::string(more.status().message());
    if (!*more) return "";
  }
}

// The column as text, or the error.
std::string Read(const std::string& text, const std::string& columns,
                 const CsvOptions& options = {}) {
  const auto column = ReadCsv(text, "f.csv", columns, options);
  if (!column.ok()) return std::string(column.status().message());
  return (*column)->tensor()->ToString();
}

TEST(CsvScannerTest, QuotedCellsHoldDelimitersLineEndsAndQuotes) {
  EXPECT_THAT(Rows("a,\"b,c\"\n\"d\ne\",\"\"\"f\"\"\"\n"),
              ElementsAre(ElementsAre("a", "b,c"), ElementsAre("d\ne", "\"f\"")));
}

TEST(CsvScannerTest, LinesEndInLfOrCrLfOrTheFile) {
  EXPECT_THAT(Rows("a,b\r\nc,\"d\"\r\ne,f"),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "d"), ElementsAre("e", "f")));
}

TEST(CsvScannerTest, EmptyLinesAndAByteOrderMarkAreSkipped) {
  EXPECT_THAT(Rows("\xef\xbb\xbf\na,b\n\n\r\nc,d\n\n"),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "d")));
}

TEST(CsvScannerTest, EmptyCellsAreCells) {
  EXPECT_THAT(Rows(",a,\n\"\",,\n,"),
              ElementsAre(ElementsAre("", "a", ""), ElementsAre("", "", ""), ElementsAre("", "")));
}

TEST(CsvScannerTest, OtherDelimiters) {
  EXPECT_THAT(Rows("a,b\tc\n", '\t'), ElementsAre(ElementsAre("a,b", "c")));
}

TEST(CsvScannerTest, BrokenQuotesNameTheLine) {
  EXPECT_EQ(ScanError("a,b\n\nc,\"d\ne,f\n"),
            "data file 'f.csv': line 3: a quote that is never closed");
  EXPECT_EQ(ScanError("a\n\"b\"c\n"), "data file 'f.csv': line 2: text after a closing quote");
}

TEST(ReadCsvTest, ColumnsByNumberNameAndRange) {
  EXPECT_EQ(Read(kIris, "0"), "float64[3]{5.1, 7, 4.9}");
  EXPECT_EQ(Read(kIris, "width"), "float64[3]{3.5, 3.2, 3}");
  EXPECT_EQ(Read(kIris, "0-1"), "float64[3,2]{5.1, 3.5, 7, 3.2, 4.9, 3}");
  EXPECT_EQ(Read(kIris, "length-width"), "float64[3,2]{5.1, 3.5, 7, 3.2, 4.9, 3}");
  EXPECT_EQ(Read(kIris, "1,0"), "float64[3,2]{3.5, 5.1, 3.2, 7, 3, 4.9}");
}

TEST(ReadCsvTest, NamesMayHoldCommasAndDashes) {
  EXPECT_EQ(Read("\"a,b\",c-d\n1,2\n", "a,b"), "int64[1]{1}");
  EXPECT_EQ(Read("\"a,b\",c-d\n1,2\n", "c-d"), "int64[1]{2}");
}

TEST(ReadCsvTest, IntegersStayIntegers) {
  EXPECT_EQ(Read("y\n3\n-1\n9007199254740993\n", "y"), "int64[3]{3, -1, 9007199254740993}");
  EXPECT_EQ(Read("y\n3\n-1\n0.5\n", "y"), "float64[3]{3, -1, 0.5}");
  EXPECT_EQ(Read("y\n 3\n+4 \n", "y"), "int64[2]{3, 4}");
}

TEST(ReadCsvTest, AColumnOfTextIsNumberedInSortedOrder) {
  const auto column = ReadCsv(kIris, "f.csv", "species", {});
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ((*column)->tensor()->ToString(), "int64[3]{0, 1, 0}");
  EXPECT_THAT((*column)->info().class_names, ElementsAre("setosa", "virginica"));
}

TEST(ReadCsvTest, GivenClassesKeepTheirNumbers) {
  CsvOptions options;
  options.classes = {"versicolor", "virginica", "setosa"};
  EXPECT_EQ(Read(kIris, "species", options), "int64[3]{2, 1, 2}");
  options.classes = {"setosa"};
  EXPECT_EQ(Read(kIris, "species", options),
            "data file 'f.csv': line 3, column 'species': 'virginica', expected one of the 1 "
            "classes");
}

TEST(ReadCsvTest, LabelsWithoutAColumnAreTheLast) {
  CsvOptions options;
  options.is_labels = true;
  EXPECT_EQ(Read("a,b\n1,2\n3,4\n", "", options), "int64[2]{2, 4}");
}

TEST(ReadCsvTest, AFirstRowWithANumberIsNoHeader) {
  EXPECT_EQ(Read("1,red\n2,blue\n", "0"), "int64[2]{1, 2}");
  EXPECT_EQ(Read("1,red\n2,blue\n", "1"), "int64[2]{1, 0}");
  CsvOptions options;
  options.has_header = false;
  EXPECT_EQ(Read("red\nblue\n", "0", options), "int64[2]{1, 0}");
}

TEST(ReadCsvTest, SemicolonsAndTabsAreFound) {
  EXPECT_EQ(Read("a;b\n1;2\n", "b"), "int64[1]{2}");
  EXPECT_EQ(Read("a\tb\n1\t2\n", "b"), "int64[1]{2}");
}

TEST(ReadCsvTest, BadCellsAreNamedByLineAndColumn) {
  EXPECT_EQ(Read("a,b\n1,2\n3,x\n", "0-1"),
            "data file 'f.csv': line 3, column 'b': 'x', expected a number (text is numbered in a "
            "column of its own)");
  EXPECT_EQ(Read("a,b\n1,2\n3,\n", "b"),
            "data file 'f.csv': line 3, column 'b': an empty cell, expected a number, as in the "
            "first row");
  EXPECT_EQ(Read("a\n1\n2x\n", "a"),
            "data file 'f.csv': line 3, column 'a': '2x', expected a number, as in the first row");
}

TEST(ReadCsvTest, RowsOfAnotherLengthAreNamed) {
  EXPECT_EQ(Read("a,b\n1,2\n3\n", "a"), "data file 'f.csv': line 3 has 1 cells, the first 2");
  EXPECT_EQ(Read("a,b\n1,2,3\n", "a"), "data file 'f.csv': line 2 has 3 cells, the first 2");
}

TEST(ReadCsvTest, UnknownColumnsListTheKnown) {
  EXPECT_EQ(Read(kIris, "color"),
            "data file 'f.csv': there is no column 'color' among its 3: length, width, species");
  EXPECT_THAT(Read(kIris, "0-3"), HasSubstr("no column '0-3'"));
  EXPECT_THAT(Read(kIris, "2-1"), HasSubstr("no column '2-1'"));
  EXPECT_THAT(Read("1,2\n", "x"), HasSubstr("which have no names (0 is the first)"));
  EXPECT_THAT(Read(kIris, "0,1,0,1"), HasSubstr("names a column twice"));
  EXPECT_THAT(Read(kIris, ""), HasSubstr("which of its 3 columns?"));
}

TEST(ReadCsvTest, FilesWithoutRowsAreRefused) {
  EXPECT_EQ(Read("", "a"), "data file 'f.csv': has no rows");
  EXPECT_EQ(Read("a,b\n", "a"), "data file 'f.csv': has a header (a, b) and no rows");
}

}  // namespace
}  // namespace weft
