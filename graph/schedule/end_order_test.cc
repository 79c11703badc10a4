#include "graph/schedule/end_order.h"

#include <string>

#include "gmock/gmock.h"
#include "graph/op_schema.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

WEFT_REGISTER_OP(OpSchema::Weft("AllReduce")
                     .VariadicInput("x")
                     .VariadicOutput("y")
                     .Infer([](InferenceContext& context) {
                       for (int i = 0; i < context.num_outputs(); ++i) {
                         context.SetOutput(i, context.InputType(i));
                       }
                       return absl::OkStatus();
                     })
                     .NoGradient("of a test")
                     .Class(OpClass::kCommunication));

// Sums dw and dv are reduced over ranks, the loss too; w becomes w + dw.
class EndOrderTest : public ::testing::Test {
 protected:
  EndOrderTest() {
    for (const char* sum : {"dw", "dv", "loss_sum"}) {
      end().AddInput(sum, testing::Floats({2}));
      partition_.accumulations.push_back({sum, {{sum, 0, 2}}});
    }
    end().AddVariable("w", testing::Floats({2}), Tensor(), true);
    Add(std::string(kWeftDomain), "AllReduce", {"dw"}, "dw_all");
    Add("test", "Add", {"w", "dw_all"}, "w_new");
    Add(std::string(kWeftDomain), "AllReduce", {"loss_sum"}, "loss");
    Add("test", "Negate", {"w_new"}, "seen");
    Add(std::string(kWeftDomain), "AllReduce", {"dv"}, "dv_all");
    end().SetVariableUpdate("w", *end().FindValue("w_new"));
  }
  Graph& end() { return partition_.end; }

  void Add(const std::string& domain, const std::string& op, const std::vector<std::string>& inputs,
           const std::string& output) {
    Graph::NodeSpec spec;
    spec.name = output;
    spec.domain = domain;
    spec.op = op;
    for (const std::string& input : inputs) spec.inputs.push_back(*end().FindValue(input));
    spec.outputs = {output};
    end().AddNode(std::move(spec));
  }
  std::vector<std::string> Names(const std::vector<NodeId>& nodes) {
    std::vector<std::string> names;
    for (const NodeId id : nodes) names.push_back(end().node(id).name);
    return names;
  }

  Partition partition_;
};

TEST_F(EndOrderTest, WithoutAGuardItIsTheGraphsOwn) {
  const auto order = OrderOfEnd(partition_);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_THAT(Names(order->nodes), ElementsAre("dw_all", "w_new", "loss", "seen", "dv_all"));
  EXPECT_EQ(order->before_guard, 0u);
}

TEST_F(EndOrderTest, NothingThatMakesOrReadsANewValueComesBeforeTheGuard) {
  partition_.guard = "loss";
  const auto order = OrderOfEnd(partition_);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_THAT(Names(order->nodes), ElementsAre("dw_all", "loss", "w_new", "seen", "dv_all"));
  EXPECT_EQ(order->before_guard, 2u);
  partition_.guard = "dv_all";
  EXPECT_EQ(OrderOfEnd(partition_)->before_guard, 3u);
}

// What other ranks wait for is sent and summed before any variable changes; what rests on a new
// value cannot be.
TEST_F(EndOrderTest, WhereStepsCommitAllCommunicationComesBeforeTheGuard) {
  partition_.guard = "loss";
  partition_.commits = true;
  const auto order = OrderOfEnd(partition_);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_THAT(Names(order->nodes), ElementsAre("dw_all", "loss", "dv_all", "w_new", "seen"));
  EXPECT_EQ(order->before_guard, 3u);
  EXPECT_FALSE(*UpdatesNeedPeers(partition_));
  Add("test", "Negate", {"seen"}, "seen_twice");
  EXPECT_FALSE(*UpdatesNeedPeers(partition_));
  Add(std::string(kWeftDomain), "AllReduce", {"seen_twice"}, "of_a_new_value");
  EXPECT_TRUE(*UpdatesNeedPeers(partition_));
  const auto with_late = OrderOfEnd(partition_);
  ASSERT_TRUE(with_late.ok()) << with_late.status();
  EXPECT_EQ(with_late->before_guard, 3u);
}

TEST_F(EndOrderTest, AGuardThatIsNotThereIsNamed) {
  partition_.guard = "error";
  EXPECT_EQ(std::string(OrderOfEnd(partition_).status().message()),
            "the end graph has no value 'error' to guard");
}

TEST_F(EndOrderTest, OnlyAllReducesOfSumsThatNobodyElseReadsRunBesideMicroBatches) {
  Add("test", "Negate", {"dv"}, "other_reader");
  Add(std::string(kWeftDomain), "AllReduce", {"w_new"}, "of_no_sum");
  const auto beside = CollectivesBesideMicroBatches(partition_);
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_THAT(Names(*beside), ElementsAre("dw_all", "loss"));
}

}  // namespace
}  // namespace weft
