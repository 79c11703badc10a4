#include "graph/schedule/node_collective.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// A graph of one collective over ranks 4, 5 and 6, unless told; types are set by hand.
struct CollectiveGraph {
  Graph graph;
  NodeId node;

  CollectiveGraph(const std::string& op, Attributes attributes, const std::vector<Shape>& inputs,
                  const std::vector<Shape>& outputs) {
    Graph::NodeSpec spec;
    spec.name = "collective";
    spec.domain = std::string(kWeftDomain);
    spec.op = op;
    spec.attributes = std::move(attributes);
    if (!spec.attributes.Has("group")) spec.attributes.Set("group", Ints{4, 5, 6});
    for (const Shape& shape : inputs) spec.inputs.push_back(graph.AddInput("x", FloatType(shape)));
    for (size_t i = 0; i < outputs.size(); ++i) spec.outputs.push_back("y" + std::to_string(i));
    node = graph.AddNode(std::move(spec));
    for (size_t i = 0; i < outputs.size(); ++i) {
      graph.value(graph.node(node).outputs[i]).type = FloatType(outputs[i]);
    }
  }

  absl::StatusOr<NodeCollective> Of(int rank) const {
    return CollectiveOfNode(graph, graph.node(node), RankId(rank));
  }
  int64_t SentBytes(int rank) const { return Of(rank)->sent_bytes(); }
};

TEST(CollectiveOfNodeTest, AnAllReducePadsEachTensorTo64Bytes) {
  const CollectiveGraph sum("AllReduce", {{"algorithm", std::string("ring")}}, {{3}, {17}},
                            {{3}, {17}});
  EXPECT_EQ(*AllReduceBlockElements(sum.graph, sum.graph.node(sum.node)), 16 + 32);
  EXPECT_EQ(sum.SentBytes(5), 2 * 48 * 4 * 2 / 3);
  EXPECT_EQ(sum.Of(6)->member, 2);
}

TEST(CollectiveOfNodeTest, AnOrderedTreeHasABlockForEachSubtreeOfTheMember) {
  // Members have micro-batches [0,1), [1,3), [3,5): the last two are two subtrees each or one.
  const CollectiveGraph sum(
      "AllReduce", {{"algorithm", std::string("ordered_tree")}, {"total_blocks", int64_t{5}}},
      {{16}, {16}}, {{16}});
  EXPECT_EQ(sum.Of(4)->schedule.buffer_elements[0], 16);
  EXPECT_EQ(sum.Of(5)->schedule.buffer_elements[0], 2 * 16);
}

TEST(CollectiveOfNodeTest, AnOrderedTreeKnowsUnequalParts) {
  // Members have [0,4), [4,7) and [7,8): the second brings two subtrees.
  const CollectiveGraph sum("AllReduce",
                            {{"algorithm", std::string("ordered_tree")},
                             {"total_blocks", int64_t{8}},
                             {"member_begins", Ints{0, 4, 7}}},
                            {{16}, {16}}, {{16}});
  const std::vector<std::vector<LeafRange>> blocks = {{{0, 4}}, {{4, 6}, {6, 7}}, {{7, 8}}};
  for (int member = 0; member < 3; ++member) {
    EXPECT_EQ(sum.Of(4 + member)->schedule.ToString(),
              OrderedTreeAllReduce(blocks, member, 8, 16).ToString())
        << member;
  }
}

TEST(CollectiveOfNodeTest, TheHostsChooseTheAlgorithm) {
  Attributes attributes = {{"algorithm", std::string("auto")}};
  const CollectiveGraph flat("AllReduce", attributes, {{30000}}, {{30000}});
  EXPECT_EQ(flat.Of(4)->schedule.ToString(), RingAllReduce(3, 0, 30000).ToString());
  attributes.Set("algorithm", std::string("hierarchical"));
  attributes.Set("hosts", Ints{0, 0, 1});
  const CollectiveGraph by_host("AllReduce", attributes, {{30000}}, {{30000}});
  EXPECT_EQ(by_host.Of(4)->schedule.ToString(),
            HierarchicalAllReduce({0, 0, 1}, 0, 30000).ToString());
  const CollectiveGraph two_and_two("AllReduce",
                                    {{"algorithm", std::string("auto")},
                                     {"group", Ints{1, 3, 5, 7}},
                                     {"hosts", Ints{8, 9, 8, 9}}},
                                    {{32000}}, {{32000}});
  EXPECT_EQ(two_and_two.Of(5)->schedule.ToString(),
            HierarchicalAllReduce({8, 9, 8, 9}, 2, 32000).ToString());
}

TEST(CollectiveOfNodeTest, GatheringAndScatteringSendAllButOneShardOfUnevenOnes) {
  // 15 columns as 3 blocks of 5, of which the ranks have 2, 2 and 1.
  const Attributes along = {{"dim", int64_t{1}}, {"blocks", int64_t{3}}, {"sizes", Ints{2, 2, 1}}};
  const CollectiveGraph gather("AllGather", along, {{7, 6}}, {{7, 15}});
  // Around the ring each passes on all but what its successor began with.
  EXPECT_EQ(gather.SentBytes(4), 4 * 7 * (15 - 6));
  EXPECT_EQ(gather.SentBytes(5), 4 * 7 * (15 - 3));
  EXPECT_EQ(gather.SentBytes(6), 4 * 7 * (15 - 6));
  const CollectiveGraph scatter("ReduceScatter", along, {{7, 15}}, {{7, 6}});
  EXPECT_EQ(scatter.SentBytes(4), 4 * 7 * (15 - 6));
  EXPECT_EQ(scatter.SentBytes(6), 4 * 7 * (15 - 3));
}

TEST(CollectiveOfNodeTest, AllToAllSendsWhatTheOthersShare) {
  const Attributes regroup = {{"dim", int64_t{1}},
                              {"blocks", int64_t{3}},
                              {"sizes", Ints{2, 2, 1}},
                              {"split_dim", int64_t{0}},
                              {"split_sizes", Ints{3, 2, 2}}};
  const CollectiveGraph exchange("AllToAll", regroup, {{7, 6, 4}}, {{2, 15, 4}});
  const Shape whole = WholeOfAllToAll(exchange.graph, exchange.graph.node(exchange.node));
  EXPECT_EQ(whole, (Shape{7, 15, 4}));
  EXPECT_THAT(
      PieceCounts(exchange.graph.node(exchange.node), whole),
      ElementsAre(ElementsAre(72, 48, 48), ElementsAre(72, 48, 48), ElementsAre(36, 24, 24)));
  EXPECT_EQ(exchange.SentBytes(5), 4 * (72 + 48));
}

TEST(CollectiveOfNodeTest, ABroadcastGoesDownTheTreeOfItsRoot) {
  const CollectiveGraph broadcast("Broadcast", {{"root", int64_t{5}}}, {}, {{10}});
  EXPECT_EQ(broadcast.SentBytes(4), 0);
  EXPECT_EQ(broadcast.SentBytes(5), 2 * 40);
}

TEST(CollectiveOfNodeTest, OthersRanksAndOpsAreRefused) {
  const CollectiveGraph sum("AllReduce", {{"algorithm", std::string("ring")}}, {{3}}, {{3}});
  EXPECT_THAT(std::string(sum.Of(7).status().message()),
              HasSubstr("rank 7 runs a collective of a group it is not in"));
  const CollectiveGraph other("Scale", {}, {{3}}, {{3}});
  EXPECT_THAT(std::string(other.Of(4).status().message()), HasSubstr("'Scale' is no collective"));
}

}  // namespace
}  // namespace weft
