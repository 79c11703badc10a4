#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/value_runner.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using weft::testing::ResultText;

Tensor Texts(std::vector<std::string> texts) {
  const Shape shape{static_cast<int64_t>(texts.size())};
  return Tensor::OfStrings(shape, std::move(texts));
}

TEST(StringNormalizerTest, RemovesStopwordsInAnyCase) {
  EXPECT_EQ(ResultText("StringNormalizer", {Texts({"Monday", "tuesday", "MONDAY"})},
                       {{"stopwords", std::vector<std::string>{"monday"}},
                        {"case_change_action", std::string("UPPER")}}),
            Texts({"TUESDAY"}).ToString());
}

TEST(StringNormalizerTest, KnowsTheCaseOfOtherAlphabets) {
  EXPECT_EQ(ResultText("StringNormalizer", {Texts({"École", "ЗИМА"})},
                       {{"case_change_action", std::string("LOWER")}}),
            Texts({"école", "зима"}).ToString());
}

TEST(StringNormalizerTest, LeavesOneEmptyStringOfNothing) {
  EXPECT_EQ(
      ResultText("StringNormalizer", {Tensor::OfStrings(Shape{1, 1}, {"a"})},
                 {{"stopwords", std::vector<std::string>{"a"}}, {"is_case_sensitive", int64_t{1}}}),
      Tensor::OfStrings(Shape{1, 1}, {""}).ToString());
}

TEST(StringConcatTest, Broadcasts) {
  EXPECT_EQ(
      ResultText("StringConcat", {Tensor::OfStrings(Shape{2, 1}, {"a", "b"}), Texts({"x", "y"})}),
      Tensor::OfStrings(Shape{2, 2}, {"ax", "ay", "bx", "by"}).ToString());
  EXPECT_THAT(ResultText("StringConcat", {Texts({"a", "b"}), Texts({"x", "y", "z"})}),
              HasSubstr("do not broadcast"));
}

TEST(StringSplitTest, GroupsWhitespaceAndPads) {
  EXPECT_EQ(ResultText("StringSplit", {Texts({"  hello  weft ", "a", ""})}),
            Tensor::OfStrings(Shape{3, 2}, {"hello", "weft", "a", "", "", ""}).ToString());
  EXPECT_EQ(ResultText("StringSplit", {Texts({"  hello  weft ", "a", ""})}, {}, 1),
            Tensor::Of<int64_t>(Shape{3}, {2, 1, 0}).ToString());
}

TEST(StringSplitTest, KeepsWhatLiesBehindTheLastSplit) {
  EXPECT_EQ(ResultText("StringSplit", {Texts({"a,b,,c"})},
                       {{"delimiter", std::string(",")}, {"maxsplit", int64_t{2}}}),
            Tensor::OfStrings(Shape{1, 3}, {"a", "b", ",c"}).ToString());
  EXPECT_EQ(ResultText("StringSplit", {Texts({" a  b  c "})}, {{"maxsplit", int64_t{1}}}),
            Tensor::OfStrings(Shape{1, 2}, {"a", "b  c "}).ToString());
}

TEST(RegexFullMatchTest, MatchesTheWhole) {
  EXPECT_EQ(ResultText("RegexFullMatch", {Texts({"ab", "abc"})}, {{"pattern", std::string("ab")}}),
            "bool[2]{true, false}");
  EXPECT_THAT(ResultText("RegexFullMatch", {Texts({"a"})}, {{"pattern", std::string("(")}}),
              HasSubstr("is no regular expression"));
}

Attributes Grams(int64_t skips, const std::string& mode = "TF") {
  return {{"mode", mode},
          {"min_gram_length", int64_t{1}},
          {"max_gram_length", int64_t{2}},
          {"max_skip_count", skips},
          {"ngram_counts", std::vector<int64_t>{0, 2}},
          {"ngram_indexes", std::vector<int64_t>{0, 1, 2, 3}},
          {"pool_int64s", std::vector<int64_t>{2, 3, 5, 4, 5, 6}}};
}

TEST(TfIdfVectorizerTest, CountsGramsWithGaps) {
  const Tensor x = Tensor::Of<int64_t>(Shape{5}, {2, 5, 4, 6, 2});
  EXPECT_EQ(ResultText("TfIdfVectorizer", {x}, Grams(0)), "float32[4]{2, 0, 1, 0}");
  EXPECT_EQ(ResultText("TfIdfVectorizer", {x}, Grams(1)), "float32[4]{2, 0, 1, 1}");
}

TEST(TfIdfVectorizerTest, GramsLongerThanTheRowCountNothing) {
  Attributes attributes = Grams(std::numeric_limits<int64_t>::max());
  attributes.Set("min_gram_length", std::numeric_limits<int64_t>::max());
  attributes.Set("max_gram_length", std::numeric_limits<int64_t>::max());
  const Tensor x = Tensor::Of<int64_t>(Shape{5}, {2, 5, 4, 6, 2});
  EXPECT_EQ(ResultText("TfIdfVectorizer", {x}, attributes), "float32[4]{0, 0, 0, 0}");
}

TEST(TfIdfVectorizerTest, WeighsWhatIsThere) {
  Attributes attributes = Grams(0, "IDF");
  attributes.Set("weights", std::vector<float>{0.5, 1, 3, 1});
  EXPECT_EQ(ResultText("TfIdfVectorizer", {Tensor::Of<int64_t>(Shape{3}, {2, 5, 4})}, attributes),
            "float32[4]{0.5, 0, 3, 0}");
}

TEST(CastTest, WritesTheFewestDigits) {
  const Tensor x = Tensor::Of<float>(Shape{7}, {0.47892547F, 1, -1500, 1e-5F, 1e20F, 0.001F,
                                                std::numeric_limits<float>::infinity()});
  EXPECT_EQ(ResultText("Cast", {x}, {{"to", static_cast<int64_t>(DType::kString)}}),
            Texts({"0.47892547", "1.0", "-1500.0", "1e-05", "1e+20", "0.001", "inf"}).ToString());
}

TEST(CastTest, ReadsNumbers) {
  const auto cast = [](std::vector<std::string> texts, DType to) {
    return ResultText("Cast", {Texts(std::move(texts))}, {{"to", static_cast<int64_t>(to)}});
  };
  EXPECT_EQ(cast({"3.5", "1e-2", "-INF", "+inf"}, DType::kFloat32),
            "float32[4]{3.5, 0.01, -inf, inf}");
  EXPECT_EQ(cast({"100.5", "-7"}, DType::kInt32), "int32[2]{100, -7}");
  EXPECT_EQ(cast({"0.5"}, DType::kFloat16), "float16[1]{0.5}");
  EXPECT_THAT(cast({"1", "weft"}, DType::kInt64), HasSubstr("element 1, 'weft', is no number"));
}

TEST(StringsTest, MoveAsCodes) {
  const Tensor x = Tensor::OfStrings(Shape{2, 2}, {"b", "", "a", "b"});
  EXPECT_EQ(ResultText("Transpose", {x}),
            Tensor::OfStrings(Shape{2, 2}, {"b", "a", "", "b"}).ToString());
  EXPECT_EQ(ResultText("Gather", {x, Tensor::Of<int64_t>(Shape{1}, {1})}),
            Tensor::OfStrings(Shape{1, 2}, {"a", "b"}).ToString());
  EXPECT_EQ(ResultText("Concat", {x, x}, {{"axis", int64_t{1}}}),
            Tensor::OfStrings(Shape{2, 4}, {"b", "", "b", "", "a", "b", "a", "b"}).ToString());
}

TEST(StringsTest, HaveAShape) {
  EXPECT_EQ(ResultText("Shape", {Tensor::OfStrings(Shape{2, 1}, {"b", ""})}), "int64[2]{2, 1}");
  EXPECT_EQ(ResultText("Size", {Tensor::OfStrings(Shape{2, 1}, {"b", ""})}), "int64[]{2}");
}

TEST(PackedNumbersTest, MoveAsCodes) {
  const absl::StatusOr<Tensor> x =
      CastTensor(Tensor::Of<int64_t>(Shape{3}, {-8, 7, 1}), DType::kInt4);
  ASSERT_TRUE(x.ok()) << x.status();
  EXPECT_EQ(ResultText("Concat", {*x, *x}, {{"axis", int64_t{0}}}), "int4[6]{-8, 7, 1, -8, 7, 1}");
}

}  // namespace
}  // namespace weft
