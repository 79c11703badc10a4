#include "graph/sharding.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AxisSharding, TextFormsRoundTrip) {
  for (const AxisSharding& sharding :
       {AxisSharding::Replicated(), AxisSharding::Partial(), AxisSharding::Split(0),
        AxisSharding::Split(3), AxisSharding::Split(1, 3)}) {
    const auto parsed = AxisSharding::Parse(sharding.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, sharding);
  }
  EXPECT_EQ(AxisSharding::Split(1, 3).ToString(), "S(1,blocks=3)");
  EXPECT_EQ(AxisSharding::Split(1).ToString(), "S(1)");
}

TEST(AxisSharding, BadTextIsAnError) {
  for (const char* text : {"", "r", "S", "S()", "S(-1)", "S(1", "S(1,blocks=0)", "S(1,blocks=-2)",
                           "S(1,blocks=)", "S(1,3)", "S(1)x", "S(1,blocks=2,blocks=3)", "SS(1)"}) {
    EXPECT_EQ(AxisSharding::Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(AxisSharding::Parse("T(1)").status().message(),
            "sharding 'T(1)' is none of R, P, S(axis) and S(axis,blocks=n)");
}

TEST(AxisSharding, ValidateChecksAxisAndBlocks) {
  EXPECT_TRUE(AxisSharding::Split(1, 3).Validate({2, 6}).ok());
  EXPECT_TRUE(AxisSharding::Partial().Validate({}).ok());
  EXPECT_THAT(AxisSharding::Split(2).Validate({2, 6}).message(),
              HasSubstr("splits axis 2 of a value of shape [2,6], which has axes 0 to 1"));
  EXPECT_THAT(AxisSharding::Split(1, 4).Validate({2, 6}).message(),
              HasSubstr("4 does not divide 6"));
}

TEST(AxisSharding, LocalShapesOfUnevenAndBlockedSplits) {
  EXPECT_EQ(AxisSharding::Split(0).LocalShape({7, 2}, 3, 0), (Shape{3, 2}));
  EXPECT_EQ(AxisSharding::Split(0).LocalShape({7, 2}, 3, 2), (Shape{2, 2}));
  EXPECT_EQ(AxisSharding::Split(0).LocalShape({1, 2}, 2, 1), (Shape{0, 2}));
  EXPECT_EQ(AxisSharding::Split(1, 3).LocalShape({2, 12}, 2, 1), (Shape{2, 6}));
  EXPECT_EQ(AxisSharding::Partial().LocalShape({7}, 3, 1), (Shape{7}));
}

TEST(Sharding, TextNamesOnlyWhatIsNotReplicated) {
  Sharding sharding;
  EXPECT_EQ(sharding.ToString(), "R");
  sharding.at(MeshAxis::kData) = AxisSharding::Split(0);
  sharding.at(MeshAxis::kTensor) = AxisSharding::Partial();
  EXPECT_EQ(sharding.ToString(), "data=S(0) tensor=P");
}

TEST(ShardRange, ShardsCoverTheAxisInOrderAndEvenly) {
  EXPECT_TRUE(rc::check("shards tile the axis", [] {
    const int64_t size = *rc::gen::inRange<int64_t>(0, 1000);
    const int shards = *rc::gen::inRange(1, 40);
    int64_t next = 0;
    for (int i = 0; i < shards; ++i) {
      const AxisSharding::Range range = AxisSharding::ShardRange(size, shards, i);
      RC_ASSERT(range.first == next);
      RC_ASSERT(range.count == size / shards + (i < size % shards ? 1 : 0));
      next += range.count;
    }
    RC_ASSERT(next == size);
  }));
}

// The shard that owns index `i` of an axis of `size`.
int OwnerOf(int64_t i, int64_t size, int shards) {
  int64_t end = 0;
  for (int shard = 0; shard < shards; ++shard) {
    end += size / shards + (shard < size % shards ? 1 : 0);
    if (i < end) return shard;
  }
  return -1;
}

// A dimension of factors with these sizes, one of which is split.
struct FactoredDim {
  std::vector<int64_t> sizes;
  int split = 0;

  int64_t size() const {
    int64_t product = 1;
    for (const int64_t s : sizes) product *= s;
    return product;
  }
  // By enumeration: the shard of element `index` is the owner of its index along the factor.
  int OwnerOfElement(int64_t index, int shards) const {
    for (int i = static_cast<int>(sizes.size()) - 1; i > split; --i) index /= sizes[i];
    return OwnerOf(index % sizes[split], sizes[split], shards);
  }
};

// The shard that holds element `index` under a blocked split, by the definition: blocks x rest, and
// the rest is split.
int OwnerUnder(const AxisSharding& sharding, int64_t index, int64_t size, int shards) {
  const int64_t rest = size / sharding.blocks;
  return OwnerOf(index % rest, rest, shards);
}

TEST(ShardingOfFactor, AgreesWithEnumeratedElements) {
  EXPECT_TRUE(rc::check("every element lies where its factor says", [] {
    FactoredDim dim;
    dim.sizes = *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange(1, 4),
                                                          rc::gen::inRange<int64_t>(1, 9));
    dim.split = *rc::gen::inRange<int>(0, static_cast<int>(dim.sizes.size()));
    const int shards = *rc::gen::inRange(1, 6);
    FactorRule rule;
    OperandFactors operand;
    operand.dims.push_back({});
    for (const int64_t size : dim.sizes) {
      operand.dims[0].push_back(static_cast<int>(rule.factors.size()));
      rule.factors.push_back({size, FactorKind::kParallel});
    }
    const auto sharding = ShardingOfFactor(rule, operand, dim.split, shards);
    if (!sharding.has_value()) {
      // Only where the cut would fall inside the factor's elements.
      RC_ASSERT(dim.sizes[dim.split] % shards != 0);
      RC_ASSERT(dim.split + 1 < static_cast<int>(dim.sizes.size()));
      return;
    }
    RC_ASSERT(sharding->Validate({dim.size()}).ok());
    std::vector<int64_t> held(shards);
    for (int64_t i = 0; i < dim.size(); ++i) {
      const int owner = dim.OwnerOfElement(i, shards);
      RC_ASSERT(OwnerUnder(*sharding, i, dim.size(), shards) == owner);
      ++held[owner];
    }
    for (int shard = 0; shard < shards; ++shard) {
      RC_ASSERT(sharding->LocalShape({dim.size()}, shards, shard).dim(0) == held[shard]);
    }
  }));
}

// "n (h d) -> n h d" with h = 4, d = 3.
FactorRule HeadsRule() {
  FactorRule rule;
  rule.factors = {{5, FactorKind::kParallel}, {4, FactorKind::kParallel}, {3, FactorKind::kWhole}};
  rule.inputs = {{{{0}, {1, 2}}}};
  rule.outputs = {{{{0}, {1}, {2}}}};
  return rule;
}

TEST(ShardingOfFactor, HeadsSplitBothSidesOfAReshape) {
  const FactorRule rule = HeadsRule();
  EXPECT_EQ(ShardingOfFactor(rule, rule.inputs[0], 1, 2), AxisSharding::Split(1));
  EXPECT_EQ(ShardingOfFactor(rule, rule.outputs[0], 1, 2), AxisSharding::Split(1));
  EXPECT_EQ(ShardingOfFactor(rule, rule.inputs[0], 1, 3), std::nullopt);  // 4 heads on 3 ranks
  EXPECT_EQ(ShardingOfFactor(rule, rule.outputs[0], 1, 3), AxisSharding::Split(1));
}

TEST(ShardingOfFactor, FusedQueryKeyValueNeedsBlocks) {
  FactorRule rule;
  rule.factors = {{3, FactorKind::kParallel}, {4, FactorKind::kParallel}, {8, FactorKind::kWhole}};
  const OperandFactors fused = {{{0, 1, 2}}};
  EXPECT_EQ(ShardingOfFactor(rule, fused, 1, 2), AxisSharding::Split(0, 3));
}

TEST(ShardingOfFactor, OperandWithoutTheFactorIsReplicated) {
  const FactorRule rule = HeadsRule();
  EXPECT_EQ(ShardingOfFactor(rule, OperandFactors(), 1, 2), AxisSharding::Replicated());
}

TEST(ShardingOfFactor, WholeFactorsAndDiagonalsAreNotSplit) {
  const FactorRule rule = HeadsRule();
  EXPECT_EQ(ShardingOfFactor(rule, rule.outputs[0], 2, 3), std::nullopt);
  EXPECT_EQ(ShardingOfFactor(rule, {{{1}, {1}}}, 1, 2), std::nullopt);
}

TEST(WholeRule, NothingOfItMayBeSplit) {
  const FactorRule rule = WholeRule({{2, 3}, {}}, {{4}});
  EXPECT_THAT(rule.inputs[0].dims, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_TRUE(rule.inputs[1].dims.empty());
  EXPECT_THAT(rule.outputs[0].dims, ElementsAre(ElementsAre(2)));
  for (int factor = 0; factor < 3; ++factor) {
    EXPECT_EQ(ShardingOfFactor(rule, rule.inputs[0], factor, 2), std::nullopt);
  }
  EXPECT_EQ(rule.factors[1].size, 3);
}

}  // namespace
}  // namespace weft
