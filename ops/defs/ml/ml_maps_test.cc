// Maps of ai.onnx.ml, which are sequences of values and keys. Expected values of DictVectorizer and
// CastMap (of floats) are onnxruntime 1.31's.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/value_runner.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

Tensor Texts(const Strings& texts) {
  return Tensor::OfStrings(Shape{static_cast<int64_t>(texts.size())}, texts);
}
Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}
Tensor Numbers(const Ints& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}
Value Map(Tensor keys, Tensor values) {
  return Value::Sequence({std::move(values), std::move(keys)});
}

const ValueType kMapOfFloats = {ValueKind::kSequence, DType::kFloat32, SymbolicShape(),
                                ValueKind::kTensor};

// What inference says of the op on an input of this type.
std::string Refusal(const std::string& op, const ValueType& input, const Attributes& attributes) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.Ops("ai.onnx.ml", op, {graph.AddInput("x", input)}, attributes, {true});
  return std::string(builder.status().message());
}

std::string Vectorized(const Value& map, const Attributes& attributes) {
  return ResultText("ai.onnx.ml::DictVectorizer", {map}, attributes);
}

TEST(DictVectorizer, PutsValuesWhereTheVocabularySays) {
  const Attributes words = {{"string_vocabulary", Strings{"a", "b", "c"}}};
  EXPECT_EQ(Vectorized(Map(Texts({"c", "a"}), Floats({2, 1.5})), words), "float32[1,3]{1.5, 0, 2}");
  EXPECT_EQ(Vectorized(Map(Texts({"a", "z"}), Floats({1.5, 2})), words), "float32[1,3]{1.5, 0, 0}");
  EXPECT_EQ(Vectorized(Map(Texts({"b"}), Numbers({7})), words), "int64[1,3]{0, 7, 0}");
  EXPECT_EQ(Vectorized(Map(Texts({}), Floats({})), words), "float32[1,3]{0, 0, 0}");
  const Attributes numbers = {{"int64_vocabulary", Ints{5, 1, 9}}};
  EXPECT_EQ(Vectorized(Map(Numbers({1, 9}), Floats({2.5, 3})), numbers), "float32[1,3]{0, 2.5, 3}");
  EXPECT_EQ(Vectorized(Map(Numbers({1}), Texts({"x"})), numbers), "string[1,3]{\"\", \"x\", \"\"}");
}

TEST(DictVectorizer, SaysWhatDoesNotFit) {
  const Attributes words = {{"string_vocabulary", Strings{"a"}}};
  EXPECT_THAT(Vectorized(Map(Numbers({1}), Floats({1})), words),
              HasSubstr("the keys of the map are int64, expected string"));
  EXPECT_THAT(Vectorized(Map(Texts({"a"}), Floats({1, 2})), words),
              HasSubstr("a map has keys [1] and values [2]"));
  EXPECT_THAT(Vectorized(Value::Sequence({Floats({1})}), words), HasSubstr("expected a map"));
  EXPECT_THAT(Vectorized(Floats({1}), words), HasSubstr("expected a map"));
  EXPECT_THAT(Refusal("DictVectorizer", kMapOfFloats, {}),
              HasSubstr("either string_vocabulary or int64_vocabulary"));
  EXPECT_THAT(
      Refusal("DictVectorizer", {ValueKind::kTensor, DType::kFloat32, SymbolicShape()}, words),
      HasSubstr("expected a map"));
}

std::string Cast(const Value& map, const std::string& to, const Attributes& more = {}) {
  Attributes attributes = more;
  attributes.Set("cast_to", to);
  return ResultText("ai.onnx.ml::CastMap", {map}, attributes);
}

TEST(CastMap, OrdersByKey) {
  const Value map = Map(Numbers({3, 0}), Floats({1.5, -2.75}));
  EXPECT_EQ(Cast(map, "TO_FLOAT"), "float32[1,2]{-2.75, 1.5}");
  EXPECT_EQ(Cast(map, "TO_INT64"), "int64[1,2]{-2, 1}");
  EXPECT_EQ(Cast(map, "TO_STRING"), "string[1,2]{\"-2.750000\", \"1.500000\"}");
  EXPECT_EQ(Cast(Map(Numbers({7, -1}), Floats({2, 1.5})), "TO_FLOAT"), "float32[1,2]{1.5, 2}");
  EXPECT_EQ(Cast(Map(Numbers({1, 0}), Texts({"12", "-0.5"})), "TO_FLOAT"),
            "float32[1,2]{-0.5, 12}");
  EXPECT_EQ(Cast(Map(Numbers({}), Floats({})), "TO_FLOAT"), "float32[1,0]{}");
}

TEST(CastMap, SparseKeysArePlaces) {
  const Attributes sparse = {{"map_form", std::string("SPARSE")}, {"max_map", int64_t{4}}};
  const Value map = Map(Numbers({3, 0}), Floats({1.5, -2.75}));
  EXPECT_EQ(Cast(map, "TO_FLOAT", sparse), "float32[1,4]{-2.75, 0, 0, 1.5}");
  EXPECT_EQ(Cast(map, "TO_INT64", sparse), "int64[1,4]{-2, 0, 0, 1}");
  EXPECT_THAT(Cast(Map(Numbers({4}), Floats({1})), "TO_FLOAT", sparse),
              HasSubstr("the key 4, expected 0 to less than max_map, 4"));
  EXPECT_THAT(Cast(Map(Numbers({-1}), Floats({1})), "TO_FLOAT", sparse), HasSubstr("the key -1"));
}

TEST(CastMap, SaysWhatDoesNotFit) {
  EXPECT_THAT(Cast(Map(Numbers({0}), Texts({"x"})), "TO_FLOAT"),
              HasSubstr("the value 'x' is no number"));
  EXPECT_THAT(Cast(Map(Numbers({0}), Floats({1e30f})), "TO_INT64"), HasSubstr("is no int64"));
  EXPECT_THAT(Cast(Map(Numbers({2, 2}), Floats({1, 2})), "TO_FLOAT"), HasSubstr("the key 2 twice"));
  EXPECT_THAT(Cast(Map(Texts({"a"}), Floats({1})), "TO_FLOAT"),
              HasSubstr("the keys of the map are string, expected int64"));
  EXPECT_THAT(Refusal("CastMap", kMapOfFloats, {{"cast_to", std::string("TO_BOOL")}}),
              HasSubstr("cast_to is 'TO_BOOL'"));
  EXPECT_THAT(Refusal("CastMap", kMapOfFloats, {{"map_form", std::string("ROW")}}),
              HasSubstr("map_form is 'ROW'"));
  EXPECT_THAT(Refusal("CastMap", kMapOfFloats,
                      {{"map_form", std::string("SPARSE")}, {"max_map", int64_t{0}}}),
              HasSubstr("max_map is 0"));
}

TEST(ZipMap, GivesEachRowsScoresByLabel) {
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(ResultText("ai.onnx.ml::ZipMap", {x}, {{"classlabels_int64s", Ints{7, 8, -9}}}),
            "sequence(sequence(float32[3]{1, 2, 3}, int64[3]{7, 8, -9}), "
            "sequence(float32[3]{4, 5, 6}, int64[3]{7, 8, -9}))");
  EXPECT_THAT(ResultText("ai.onnx.ml::ZipMap", {x},
                         {{"classlabels_strings", Strings{"cat", "dog", "owl"}}}),
              HasSubstr("\"owl\""));
}

TEST(ZipMap, TakesAVectorForOneRow) {
  EXPECT_EQ(
      ResultText("ai.onnx.ml::ZipMap", {Floats({1, 2})}, {{"classlabels_int64s", Ints{0, 1}}}),
      "sequence(sequence(float32[2]{1, 2}, int64[2]{0, 1}))");
}

TEST(ZipMap, OfNoRowsIsEmpty) {
  EXPECT_EQ(ResultText("ai.onnx.ml::ZipMap", {Tensor::Of<float>({0, 2}, std::vector<float>{})},
                       {{"classlabels_int64s", Ints{0, 1}}}),
            "sequence()");
}

TEST(ZipMap, SaysWhatDoesNotFit) {
  const Tensor x = Tensor::Of<float>({1, 3}, {1, 2, 3});
  EXPECT_THAT(ResultText("ai.onnx.ml::ZipMap", {x}, {{"classlabels_int64s", Ints{0, 1}}}),
              HasSubstr("X is [1,3], expected one or two axes"));
  EXPECT_THAT(Refusal("ZipMap", {ValueKind::kTensor, DType::kFloat32, SymbolicShape()}, {}),
              HasSubstr("either classlabels_strings or classlabels_int64s"));
}

}  // namespace
}  // namespace weft::testing
