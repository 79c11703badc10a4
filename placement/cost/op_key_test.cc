#include "placement/cost/op_key.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "placement/cost/testing/round_profile.h"

namespace weft {
namespace {

TEST(OpKeyTest, IsThatOfTheWorkAndNotOfTheName) {
  NodeProbe one("Relu", {Shape{4, 8}});
  NodeProbe other("Relu", {Shape{4, 8}});
  other.node().name = "elsewhere";
  EXPECT_EQ(one.Key(), other.Key());
  EXPECT_EQ(OpText(one.View()), "Relu float32[4,8]");
}

TEST(OpKeyTest, OperatorShapesTypesAndAttributesMatter) {
  const Attributes first{{"perm", std::vector<int64_t>{0, 1}}};
  const Attributes second{{"perm", std::vector<int64_t>{1, 0}}};
  const std::vector<uint64_t> keys = {
      NodeProbe("Relu", {Shape{4, 8}}).Key(),
      NodeProbe("Relu", {Shape{8, 4}}).Key(),
      NodeProbe("Relu", {Shape{4, 8, 1}}).Key(),
      NodeProbe("Tanh", {Shape{4, 8}}).Key(),
      NodeProbe("Relu", {Shape{4, 8}}, {}, DType::kFloat64).Key(),
      NodeProbe("Transpose", {Shape{4, 4}}, first).Key(),
      NodeProbe("Transpose", {Shape{4, 4}}, second).Key(),
      NodeProbe("Add", {Shape{4, 8}, Shape{4, 8}}).Key(),
      NodeProbe("Add", {Shape{4, 8}, Shape{8}}).Key(),
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(std::count(keys.begin(), keys.end(), keys[i]), 1) << i;
  }
}

// It is written to files.
TEST(OpKeyTest, IsTheSameEverywhere) {
  EXPECT_EQ(NodeProbe("Relu", {Shape{4, 8}}).Key(), uint64_t{12184376141080725334u});
}

TEST(KindKeyTest, IsThatOfOpTypesAndRanks) {
  const auto kind = [](const NodeProbe& probe) { return KindKey(probe.View()); };
  const uint64_t relu = kind(NodeProbe("Relu", {Shape{4, 8}}));
  EXPECT_EQ(relu, kind(NodeProbe("Relu", {Shape{8, 1}})));
  EXPECT_NE(relu, kind(NodeProbe("Relu", {Shape{4, 8, 1}})));
  EXPECT_NE(relu, kind(NodeProbe("Tanh", {Shape{4, 8}})));
  EXPECT_NE(relu, kind(NodeProbe("Relu", {Shape{4, 8}}, {}, DType::kFloat64)));
  // It is written to files.
  EXPECT_EQ(relu, uint64_t{941420462525807523u});
}

TEST(FamilyTest, FollowsFromFlopsPerElement) {
  const auto family = [](const NodeProbe& probe) {
    return FamilyOf(CostOf(probe.View()), DType::kFloat32);
  };
  EXPECT_EQ(family(NodeProbe("MatMul", {Shape{256, 256}, Shape{256, 256}})),
            OpFamily::kContraction);
  EXPECT_EQ(family(NodeProbe("Conv", {Shape{8, 16, 28, 28}, Shape{16, 16, 3, 3}})),
            OpFamily::kContraction);
  // A product with a vector reads each weight for two FLOPs: memory is what limits it.
  EXPECT_EQ(family(NodeProbe("MatMul", {Shape{1, 512}, Shape{512, 512}})), OpFamily::kElementwise);
  EXPECT_EQ(family(NodeProbe("Gelu", {Shape{64, 64}})), OpFamily::kElementwise);
  EXPECT_EQ(family(NodeProbe("Transpose", {Shape{64, 64}})), OpFamily::kMovement);
}

}  // namespace
}  // namespace weft
