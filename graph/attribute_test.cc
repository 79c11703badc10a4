#include "graph/attribute.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(Attributes, PresentValuesAreReturned) {
  Attributes attributes = {{"axis", int64_t{-1}}, {"alpha", 0.5f}, {"mode", std::string("same")}};
  attributes.Set("pads", std::vector<int64_t>{1, 2});
  attributes.Set("scales", std::vector<float>{2.0f});
  attributes.Set("names", std::vector<std::string>{"a", "b"});
  EXPECT_EQ(attributes.Int("axis", 7), -1);
  EXPECT_EQ(attributes.Float("alpha", 7), 0.5f);
  EXPECT_EQ(attributes.String("mode", "other"), "same");
  EXPECT_THAT(attributes.Ints("pads"), ElementsAre(1, 2));
  EXPECT_THAT(attributes.Floats("scales"), ElementsAre(2.0f));
  EXPECT_THAT(attributes.Strings("names"), ElementsAre("a", "b"));
}

TEST(Attributes, AbsentOnesAndOnesOfAnotherTypeGiveTheFallback) {
  const Attributes attributes = {{"axis", 1.0f}};
  EXPECT_EQ(attributes.Int("axis", 7), 7);
  EXPECT_EQ(attributes.Int("other", 8), 8);
  EXPECT_THAT(attributes.Ints("other", {3}), ElementsAre(3));
  EXPECT_EQ(attributes.Find("other"), nullptr);
}

TEST(Attributes, IterationIsByName) {
  const Attributes attributes = {{"b", int64_t{1}}, {"a", int64_t{2}}};
  EXPECT_EQ(attributes.items().begin()->first, "a");
}

TEST(Attributes, EqualityIsBitwise) {
  const auto with = [](Attribute value) { return Attributes{{"value", std::move(value)}}; };
  EXPECT_TRUE(with(std::nanf("")).Equals(with(std::nanf(""))));
  EXPECT_FALSE(with(0.0f).Equals(with(-0.0f)));
  EXPECT_FALSE(with(int64_t{1}).Equals(with(1.0f)));
  EXPECT_TRUE(with(std::vector<float>{1, 2}).Equals(with(std::vector<float>{1, 2})));
  EXPECT_FALSE(with(std::vector<float>{1, 2}).Equals(with(std::vector<float>{1})));
  EXPECT_TRUE(with(Tensor::Scalar<int>(3)).Equals(with(Tensor::Scalar<int>(3))));
  EXPECT_FALSE(with(Tensor::Scalar<int>(3)).Equals(with(Tensor::Scalar<int64_t>(3))));
  EXPECT_FALSE(with(int64_t{1}).Equals(Attributes()));
  EXPECT_FALSE(with(int64_t{1}).Equals({{"other", int64_t{1}}}));
}

TEST(Attributes, SubgraphsAreNeverEqual) {
  const auto body = std::make_shared<Graph>();
  const Attributes attributes = {{"body", body}};
  EXPECT_FALSE(attributes.Equals(attributes));
}

TEST(Attribute, TypesHaveNames) {
  const auto name = [](const Attribute& value) {
    return std::string(AttributeTypeName(TypeOf(value)));
  };
  EXPECT_EQ(name(int64_t{1}), "int");
  EXPECT_EQ(name(1.0f), "float");
  EXPECT_EQ(name(std::string()), "string");
  EXPECT_EQ(name(Tensor()), "tensor");
  EXPECT_EQ(name(std::make_shared<Graph>()), "graph");
  EXPECT_EQ(name(std::vector<int64_t>()), "ints");
  EXPECT_EQ(name(std::vector<float>()), "floats");
  EXPECT_EQ(name(std::vector<std::string>()), "strings");
  EXPECT_EQ(name(std::vector<Tensor>()), "tensors");
}

}  // namespace
}  // namespace weft
