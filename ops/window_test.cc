#include "ops/window.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

WindowAxis Resolved(const Attributes& attributes, int64_t kernel, int64_t input) {
  const auto spec = WindowSpec::Create(attributes, {kernel});
  EXPECT_TRUE(spec.ok()) << spec.status();
  const auto axis = spec->Resolve(0, input);
  EXPECT_TRUE(axis.ok()) << axis.status();
  return *axis;
}

std::string ErrorOf(const Attributes& attributes, int64_t kernel, int64_t input) {
  const auto spec = WindowSpec::Create(attributes, {kernel});
  if (!spec.ok()) return std::string(spec.status().message());
  return std::string(spec->Resolve(0, input).status().message());
}

TEST(WindowTest, CountsWholeWindowsOfThePaddedImage) {
  EXPECT_EQ(Resolved({}, 3, 7).output, 5);
  EXPECT_EQ(Resolved({{"strides", std::vector<int64_t>{2}}}, 3, 8).output, 3);
  EXPECT_EQ(Resolved({{"pads", std::vector<int64_t>{1, 2}}}, 3, 7).output, 8);
  EXPECT_EQ(Resolved({{"dilations", std::vector<int64_t>{3}}}, 3, 7).output, 1);
}

TEST(WindowTest, CeilModeAddsWindowThatStartsInside) {
  const Attributes ceil = {{"ceil_mode", int64_t{1}}, {"strides", std::vector<int64_t>{2}}};
  EXPECT_EQ(Resolved(ceil, 3, 8).output, 4);
  const Attributes beyond = {{"ceil_mode", int64_t{1}}, {"strides", std::vector<int64_t>{2}}};
  EXPECT_EQ(Resolved(beyond, 1, 2).output, 1);  // the second would start beyond the image
}

TEST(WindowTest, AutoPadKeepsTheSizeDividedByTheStride) {
  const WindowAxis upper = Resolved(
      {{"auto_pad", std::string("SAME_UPPER")}, {"strides", std::vector<int64_t>{2}}}, 4, 7);
  EXPECT_EQ(upper.output, 4);
  EXPECT_EQ(upper.pad_begin, 1);
  EXPECT_EQ(upper.pad_end, 2);
  const WindowAxis lower = Resolved({{"auto_pad", std::string("SAME_LOWER")}}, 2, 5);
  EXPECT_EQ(lower.output, 5);
  EXPECT_EQ(lower.pad_begin, 1);
  EXPECT_EQ(lower.pad_end, 0);
  const WindowAxis valid =
      Resolved({{"auto_pad", std::string("VALID")}, {"pads", std::vector<int64_t>{5, 5}}}, 2, 5);
  EXPECT_EQ(valid.output, 4);
}

TEST(WindowTest, KeepsSymbolWhenEachElementHasItsWindow) {
  const auto same = WindowSpec::Create({{"pads", std::vector<int64_t>{1, 1}}}, {3});
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->OutputDim(0, Dim::Symbol("T"))->ToString(), "T");
  const auto shrinking = WindowSpec::Create({}, {3});
  ASSERT_TRUE(shrinking.ok());
  EXPECT_EQ(shrinking->OutputDim(0, Dim::Symbol("T"))->ToString(), "?");
}

TEST(WindowTest, ElementsInsideTheImage) {
  const WindowAxis axis{.input = 5, .output = 1, .kernel = 4, .stride = 1, .dilation = 2};
  EXPECT_EQ(axis.FirstInside(-3), 2);
  EXPECT_EQ(axis.LastInside(-3), 4);
  EXPECT_EQ(axis.LastInside(0), 3);
  EXPECT_EQ(axis.LastInside(5), 0);
}

TEST(WindowTest, SaysWhichAttributeIsWrong) {
  EXPECT_EQ(ErrorOf({{"strides", std::vector<int64_t>{1, 1}}}, 3, 7),
            "attribute 'strides' has 2 values, expected 1");
  EXPECT_EQ(ErrorOf({{"strides", std::vector<int64_t>{0}}}, 3, 7),
            "attribute 'strides' holds 0, expected 1 or more");
  EXPECT_EQ(ErrorOf({{"pads", std::vector<int64_t>{-1, 0}}}, 3, 7),
            "attribute 'pads' holds -1, expected 0 or more");
  EXPECT_EQ(ErrorOf({{"auto_pad", std::string("SAME")}}, 3, 7),
            "attribute 'auto_pad' is 'SAME', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID");
  EXPECT_EQ(ErrorOf({}, 0, 7), "a window of size 0 with dilation 1 is not possible");
  EXPECT_EQ(ErrorOf({}, 9, 7),
            "a window that spans 9 elements does not fit image axis 0 of size 7 with padding 0 and "
            "0");
}

}  // namespace
}  // namespace weft
