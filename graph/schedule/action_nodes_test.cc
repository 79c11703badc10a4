#include "graph/schedule/action_nodes.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/schedule/action_list.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A middle stage's micro graph: h = Negate(x) is sent on; dh comes in; dx = Negate(dh) is sent
// back; dw = Add(dx, dh) is summed, which nobody waits for.
class ActionNodesTest : public ::testing::Test {
 protected:
  ActionNodesTest() {
    partition_.rank = RankId(0);
    partition_.mesh = {1, 1, 2};
    partition_.micro.emplace_back();
    graph().AddInput("x", testing::Floats({2}));
    graph().AddInput("dh", testing::Floats({2}));
    Add("Negate", {"x"}, "h", Phase::kForward);
    Add("Send", {"h"}, "", Phase::kForward);
    Add("Negate", {"dh"}, "dx", Phase::kBackward);
    Add("Add", {"dx", "dh"}, "dw", Phase::kBackward);
    Add("Send", {"dx"}, "", Phase::kBackward);
    partition_.micro_batches = {{.graph = 0}, {.index = 1, .graph = 0}};
  }
  Graph& graph() { return partition_.micro[0]; }

  void Add(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
           Phase phase, int stage = 0) {
    Graph::NodeSpec spec;
    spec.name = op + "_of_" + inputs[0];
    spec.domain = "test";
    spec.op = op;
    for (const std::string& input : inputs) spec.inputs.push_back(*graph().FindValue(input));
    if (!output.empty()) spec.outputs = {output};
    spec.phase = phase;
    spec.stage = StageId(stage);
    graph().AddNode(std::move(spec));
  }

  void SetActions(const std::string& text) { partition_.actions = *ParseActionList(text); }

  std::vector<std::string> Names(const ActionNodes& nodes, const std::string& action) {
    std::vector<std::string> names;
    for (const NodeId id : nodes.Of(ParseActionList(action)->front())) {
      names.push_back(graph().node(id).name);
    }
    return names;
  }

  Partition partition_;
};

TEST_F(ActionNodesTest, ABackwardWithoutWeightGradientsRunsTheWholeBackwardPass) {
  SetActions("Begin F0 F1 B0 B1 U");
  const auto nodes = ActionNodes::Create(partition_);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_THAT(Names(*nodes, "F1"), ElementsAre("Negate_of_x", "Send_of_h"));
  EXPECT_THAT(Names(*nodes, "B0"), ElementsAre("Negate_of_dh", "Add_of_dx", "Send_of_dx"));
  EXPECT_THAT(Names(*nodes, "W0"), IsEmpty());
}

TEST_F(ActionNodesTest, OfASplitBackwardComesFirstWhatOtherRanksWaitFor) {
  SetActions("Begin F0 F1 B0 B1 W0 W1 U");
  const auto nodes = ActionNodes::Create(partition_);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_THAT(Names(*nodes, "B1"), ElementsAre("Negate_of_dh", "Send_of_dx"));
  EXPECT_THAT(Names(*nodes, "W1"), ElementsAre("Add_of_dx"));
}

TEST_F(ActionNodesTest, AChunkRunsTheNodesOfItsStage) {
  Add("Negate", {"h"}, "y", Phase::kForward, 2);  // place 0 of two, chunk 1
  Add("Negate", {"dw"}, "dy", Phase::kBackward, 2);
  SetActions("Begin F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1 U");
  const auto nodes = ActionNodes::Create(partition_);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_THAT(Names(*nodes, "F0"), ElementsAre("Negate_of_x", "Send_of_h"));
  EXPECT_THAT(Names(*nodes, "F0.1"), ElementsAre("Negate_of_h"));
  EXPECT_THAT(Names(*nodes, "B1.1"), ElementsAre("Negate_of_dw"));
}

TEST_F(ActionNodesTest, NamesTheNodeThatNoActionRuns) {
  Add("Negate", {"h"}, "y", Phase::kForward, 2);
  SetActions("Begin F0 F1 F0.1 F1.1 B0 B1 U");
  EXPECT_TRUE(ActionNodes::Create(partition_).ok());
  Add("Negate", {"y"}, "z", Phase::kForward, 4);
  EXPECT_THAT(std::string(ActionNodes::Create(partition_).status().message()),
              HasSubstr("no action of rank 0 runs node 'Negate_of_y' of stage 4"));
}

TEST_F(ActionNodesTest, RefusesAMicroBatchThatIsNotThere) {
  SetActions("Begin F0 F2 B0 U");
  EXPECT_EQ(std::string(ActionNodes::Create(partition_).status().message()),
            "rank 0 has 2 micro-batches, but an action F2");
}

}  // namespace
}  // namespace weft
