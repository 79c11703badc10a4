#include "training/job/fused_nodes.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

FusedRole RoleOfNeg(const Graph& /*graph*/, const Node& node) {
  return node.op == "Neg" ? FusedRole::kElementwise : FusedRole::kNone;
}
constexpr FusionRules kNegRules{.role_of = RoleOfNeg};

void AddInputAndChain(Graph& graph, int chain, const std::string& name) {
  const ValueId x =
      graph.AddInput(name + "_x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({4}))});
  GraphBuilder builder(graph);
  builder.set_name_prefix(name + "/");
  ValueId y = x;
  for (int i = 0; i < chain; ++i) y = builder.Op("Neg", {y});
  graph.AddOutput(builder.Op("Exp", {y}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
}

// Two micro graphs and an end, each a chain of Neg that Exp ends.
Partition PartitionOfChains(int rank, const std::vector<int>& chains) {
  Partition partition;
  partition.rank = RankId(rank);
  partition.fuses_nodes = true;
  for (size_t i = 0; i + 1 < chains.size(); ++i) {
    AddInputAndChain(partition.micro.emplace_back(), chains[i], "micro" + std::to_string(i));
  }
  AddInputAndChain(partition.end, chains.back(), "end");
  return partition;
}

class FusedNodesTest : public ::testing::Test {
 protected:
  FusedNodesTest() {
    cluster_ = ClusterSpec::Local(3, 1);
    cluster_.workers[0].device = cluster_.workers[2].device = DeviceKind::kCuda;
    plan_.workers = {2, 1, 0};
  }
  void Add(int rank, const std::vector<int>& chains) {
    partitions_.push_back(PartitionOfChains(rank, chains));
  }
  JobFusion Fusion(const FusionRules* rules = &kNegRules) const {
    auto fusion = FusionOf(partitions_, cluster_, plan_, rules);
    EXPECT_TRUE(fusion.ok()) << fusion.status();
    return fusion.ok() ? *std::move(fusion) : JobFusion();
  }

  ClusterSpec cluster_;
  Plan plan_;
  std::vector<Partition> partitions_;
};

// A single Neg stays alone: it is no part of anything.
TEST_F(FusedNodesTest, CountsThePartsOfEachGraphOnce) {
  Add(0, {3, 1, 2});
  const JobFusion fusion = Fusion();
  ASSERT_THAT(fusion.ranks, SizeIs(1));
  const RankFusion& rank = fusion.ranks.front();
  EXPECT_EQ(rank.rank, RankId(0));
  EXPECT_EQ(rank.nodes, 5);
  ASSERT_THAT(rank.kernels, SizeIs(2));
  EXPECT_THAT(rank.kernels[0].parts, SizeIs(3));
  EXPECT_THAT(rank.kernels[1].parts, ElementsAre("end/Neg (Neg)", "end/Neg_1 (Neg)"));
  EXPECT_EQ(fusion.text, "fused: 5 nodes run in 2 kernels on the GPU of rank 0");
}

// As if the library of the GPU took each product that could be joined.
TEST_F(FusedNodesTest, ProductsAreCountedWithWhatFollowsThem) {
  Add(0, {1, 1});
  Graph& micro = partitions_[0].micro[0];
  const auto input = [&micro](const Shape& shape) {
    return micro.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(shape)});
  };
  GraphBuilder builder(micro);
  builder.set_name_prefix("layer/");
  const ValueId product = builder.Op("MatMul", {input({3, 4}), input({4, 8})});
  micro.AddOutput(builder.Op("Neg", {builder.Op("Add", {product, input({8})})}));
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  const JobFusion fusion = Fusion();
  EXPECT_EQ(fusion.text, "fused: 2 nodes run in 1 kernel on the GPU of rank 0");
  ASSERT_THAT(fusion.ranks, SizeIs(1));
  ASSERT_THAT(fusion.ranks[0].kernels, SizeIs(1));
  EXPECT_THAT(fusion.ranks[0].kernels[0].parts,
              ElementsAre("layer/MatMul (MatMul)", "layer/Add (Add)"));
}

// Rank 1 is on a CPU, which fuses nothing.
TEST_F(FusedNodesTest, RanksOnGpusAreCountedTogetherWhereTheyAgree) {
  for (const int rank : {0, 1, 2}) Add(rank, {2, 3});
  EXPECT_THAT(Fusion().ranks, SizeIs(2));
  EXPECT_EQ(Fusion().text, "fused: 5 nodes run in 2 kernels on each of 2 GPUs");
}

TEST_F(FusedNodesTest, RanksThatDifferAreNamed) {
  Add(0, {2, 1});
  Add(2, {1, 1});
  EXPECT_EQ(Fusion().text,
            "fused: no node runs with others in one kernel on rank 2; 2 nodes run in 1 kernel on "
            "rank 0");
}

TEST_F(FusedNodesTest, SaysWhyNothingIsFused) {
  Add(1, {2, 2});
  EXPECT_EQ(Fusion().text, "fused: nothing, since no worker computes on a GPU");
  Add(0, {2, 2});
  EXPECT_EQ(Fusion(nullptr).text,
            "fused: how many nodes, this program was not built to know (--config=cuda)");
  for (Partition& partition : partitions_) partition.strict = true;
  EXPECT_THAT(Fusion().ranks, IsEmpty());
  EXPECT_EQ(Fusion().text, "fused: nothing, since the job is strict");
  for (Partition& partition : partitions_) partition.fuses_nodes = false;
  EXPECT_EQ(Fusion().text, "");
}

TEST_F(FusedNodesTest, RanksWithTheSameKernelsAreExplainedTogether) {
  Add(0, {1, 2});
  Add(2, {1, 2});
  EXPECT_EQ(FusedKernelsText(Fusion().ranks),
            "fused kernels of ranks 0, 2\n  end/Neg (Neg), end/Neg_1 (Neg)\n");
  partitions_[1] = PartitionOfChains(2, {2, 1});
  EXPECT_EQ(FusedKernelsText(Fusion().ranks),
            "fused kernels of rank 0\n  end/Neg (Neg), end/Neg_1 (Neg)\n"
            "fused kernels of rank 2\n  micro0/Neg (Neg), micro0/Neg_1 (Neg)\n");
  EXPECT_EQ(FusedKernelsText({}), "");
}

}  // namespace
}  // namespace weft
