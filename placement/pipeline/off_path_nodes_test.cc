#include "placement/pipeline/off_path_nodes.h"

#include <map>
#include <string>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

// The leader of each node that has one, by name.
std::map<std::string, std::string> Leaders(const Graph& graph) {
  const auto leaders = LeadersOfOffPathNodes(graph);
  EXPECT_TRUE(leaders.ok()) << leaders.status();
  std::map<std::string, std::string> names;
  for (const NodeId id : graph.node_ids()) {
    const NodeId leader = (*leaders)[id.value];
    if (leader.valid()) names[graph.node(id).name] = graph.node(leader).name;
  }
  return names;
}

ValueId OutputOf(const Graph& graph, const std::string& node) {
  return graph.node(*graph.FindNode(node)).outputs[0];
}

// The loss is a sum of squares over a count; no gradient needs the count.
TEST(OffPathNodesTest, ACountLiesWithWhatItCounts) {
  EXPECT_EQ(Leaders(testing::RegressionGraph()),
            (std::map<std::string, std::string>{{"loss/ElementCount", "fc2/MatMul"}}));
}

// Statistics of the first layer follow it, however many nodes make them; of two layers the later
// one is meant.
TEST(OffPathNodesTest, AChainFollowsTheLastNodeThatIsNeeded) {
  Graph graph = testing::RegressionGraph();
  const ValueId h = OutputOf(graph, "fc1/MatMul");
  const ValueId y = OutputOf(graph, "fc2/MatMul");
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kForward);
  builder.set_name_prefix("side/");
  const ValueId first = builder.WeftOp("ElementCount", {h});
  const ValueId both = builder.Op("Add", {first, builder.WeftOp("ElementCount", {y})});
  builder.Op("Neg", {builder.Op("Abs", {first})});
  ASSERT_TRUE(both.valid() && builder.status().ok()) << builder.status();
  std::map<std::string, std::string> leaders = Leaders(graph);
  leaders.erase("loss/ElementCount");
  EXPECT_EQ(leaders, (std::map<std::string, std::string>{{"side/ElementCount", "fc1/MatMul"},
                                                         {"side/ElementCount_1", "fc2/MatMul"},
                                                         {"side/Add", "fc2/MatMul"},
                                                         {"side/Abs", "fc1/MatMul"},
                                                         {"side/Neg", "fc1/MatMul"}}));
}

// There every forward node is somebody's result.
TEST(OffPathNodesTest, AGraphWithoutABackwardPassHasNone) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kForward);
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{2}});
  builder.Op("Neg", {builder.Op("Abs", {x})});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  EXPECT_TRUE(Leaders(graph).empty());
}

}  // namespace
}  // namespace weft
