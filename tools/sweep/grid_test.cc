#include "tools/sweep/grid.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool IsOption(std::string_view name) { return name == "lr" || name == "batch" || name == "lora"; }

std::vector<SweepAxis> Axes(const std::vector<std::string>& texts) {
  auto axes = ParseSweepAxes(texts, IsOption);
  EXPECT_TRUE(axes.ok()) << axes.status();
  return axes.value_or(std::vector<SweepAxis>());
}

std::string AxesError(const std::vector<std::string>& texts) {
  const auto axes = ParseSweepAxes(texts, IsOption);
  EXPECT_TRUE(absl::IsInvalidArgument(axes.status())) << axes.status();
  return std::string(axes.status().message());
}

TEST(SweepGrid, AnAxisEachTime) {
  const std::vector<SweepAxis> axes = Axes({"lr=0.1,0.03", "batch=32"});
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_EQ(axes[0].option, "lr");
  EXPECT_EQ(axes[0].key, "");
  EXPECT_THAT(axes[0].values, ElementsAre("0.1", "0.03"));
  EXPECT_EQ(axes[1].option, "batch");
  EXPECT_THAT(axes[1].values, ElementsAre("32"));
}

TEST(SweepGrid, SeveralAxesInOneText) {
  const std::vector<SweepAxis> axes = Axes({"lr=0.1,0.03,batch=32,64"});
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_THAT(axes[0].values, ElementsAre("0.1", "0.03"));
  EXPECT_THAT(axes[1].values, ElementsAre("32", "64"));
}

// "head/*" is no option, so it belongs to the value.
TEST(SweepGrid, ValuesMayHaveAnEqualsSign) {
  const std::vector<SweepAxis> axes = Axes({"lr=0.1,head/*=0.2"});
  ASSERT_EQ(axes.size(), 1u);
  EXPECT_THAT(axes[0].values, ElementsAre("0.1", "head/*=0.2"));
}

TEST(SweepGrid, KeysOfAFlag) {
  const std::vector<SweepAxis> axes = Axes({"lora.rank=4,8", "lr.head/a.b=0.1"});
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_EQ(axes[0].option, "lora");
  EXPECT_EQ(axes[0].key, "rank");
  EXPECT_EQ(axes[0].Name(), "lora.rank");
  EXPECT_EQ(axes[1].key, "head/a.b");
}

// 10^-4 * 10^i; 32 + 32 i.
TEST(SweepGrid, RangesByRatioAndByDistance) {
  const std::vector<SweepAxis> axes = Axes({"lr=1e-4..1e-1:log4", "batch=32..128:4"});
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_THAT(axes[0].values, ElementsAre("0.0001", "0.001", "0.01", "0.1"));
  EXPECT_THAT(axes[1].values, ElementsAre("32", "64", "96", "128"));
}

TEST(SweepGrid, WhatIsNoRangeIsAValue) {
  EXPECT_THAT(Axes({"lr=../a:b"})[0].values, ElementsAre("../a:b"));
}

TEST(SweepGrid, BadTextsAreShown) {
  EXPECT_EQ(AxesError({"lr"}), "--sweep lr: expected FLAG=VALUE,VALUE, as lr=0.1,0.03");
  EXPECT_THAT(AxesError({"=3"}), HasSubstr("expected FLAG=VALUE"));
  EXPECT_THAT(AxesError({"lr="}), HasSubstr("a value is empty"));
  EXPECT_THAT(AxesError({"lr=1,,2"}), HasSubstr("a value is empty"));
  EXPECT_THAT(AxesError({"lr=1..2:1"}), HasSubstr("expected a number of values from 2 to 100"));
  EXPECT_THAT(AxesError({"lr=0..2:log3"}), HasSubstr("two numbers above 0"));
  EXPECT_THAT(AxesError({"lr=1", "lr=2"}), HasSubstr("--sweep lr is given twice"));
}

TEST(SweepGrid, TheSameValueTwice) {
  EXPECT_EQ(AxesError({"lr=0.1,1e-1"}),
            "--sweep lr: 0.1 and 1e-1 are the same value; leave one out");
  EXPECT_THAT(AxesError({"lora=a,a"}), HasSubstr("the same value"));
}

TEST(SweepGrid, TheLastAxisChangesFastest) {
  const auto points = GridPoints(Axes({"lr=1,2", "batch=1,2,3"}));
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_THAT(*points, ElementsAre(ElementsAre(0, 0), ElementsAre(0, 1), ElementsAre(0, 2),
                                   ElementsAre(1, 0), ElementsAre(1, 1), ElementsAre(1, 2)));
}

TEST(SweepGrid, TooManyCombinations) {
  const std::vector<SweepAxis> fitting = Axes({"lr=1..100:100", "batch=1..10:10"});
  EXPECT_EQ(GridPoints(fitting).value().size(), 1000u);
  const auto points = GridPoints(Axes({"lr=1..100:100", "batch=1..11:11"}));
  EXPECT_EQ(points.status().message(),
            "--sweep: these values have more than 1000 combinations; sweep fewer at once");
}

TEST(SweepGrid, IsToldBeforehand) {
  EXPECT_EQ(GridText(Axes({"lr=1,2", "batch=7"}), 2), "2 trials: lr (2 values) x batch (1 value)");
}

}  // namespace
}  // namespace weft
