// A graph built by calls in, its text out: what each pass does to a small graph.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "graph/passes/pass.h"
#include "graph/testing/test_ops.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using weft::testing::AddInts;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;
using weft::testing::TestEvaluator;

class PassesTest : public ::testing::Test {
 protected:
  // The graph after the pass; the pass must say rightly whether it changed it, and a second run
  // must change nothing.
  std::string After(std::unique_ptr<Pass> pass) {
    const std::string before = graph_.DebugString();
    const absl::StatusOr<bool> changed = pass->Run(graph_);
    if (!changed.ok()) return changed.status().ToString();
    const std::string after = graph_.DebugString();
    EXPECT_EQ(*changed, before != after);
    EXPECT_EQ(VerifyGraph(graph_).ToString(), "OK");
    const absl::StatusOr<bool> changed_again = pass->Run(graph_);
    EXPECT_TRUE(changed_again.ok() && !*changed_again);
    return after;
  }
  Node& NodeOf(ValueId value) { return graph_.node(graph_.value(value).producer); }

  Graph graph_;
  const ValueId x_ = graph_.AddInput("x", Floats({2}));
  TestEvaluator evaluator_;
};

// ---- infer_shapes

TEST_F(PassesTest, InferShapesFillsTypes) {
  const ValueId y = AddOp(graph_, "y", "Negate", {x_});
  graph_.value(y).type = ValueType();
  EXPECT_THAT(After(NewInferShapesPass()), HasSubstr("%y: float32[2] ="));
}

TEST_F(PassesTest, InferShapesOfUnknownDimensionsSettles) {
  graph_.value(x_).type = Floats({"?"});
  AddOp(graph_, "y", "Negate", {x_});
  AddOp(graph_, "s", "Shape", {x_});
  EXPECT_THAT(After(NewInferShapesPass()), HasSubstr("%y: float32[?] ="));
}

// ---- fold_constants

TEST_F(PassesTest, FoldingReplacesConstantSubgraphs) {
  const ValueId c = graph_.AddConstant("c", FloatsOf({2}, 3));
  const ValueId d = AddOp(graph_, "d", "Add", {AddOp(graph_, "m", "Negate", {c}), c});
  graph_.AddOutput(AddOp(graph_, "y", "Add", {x_, d}));
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator_)),
            "input %x: float32[2]\n"
            "constant %c = float32[2]{3, 3}\n"
            "constant %m = float32[2]{-3, -3}\n"
            "constant %d = float32[2]{0, 0}\n"
            "%y: float32[2] = test::Add(%x, %d)  # y_node\n"
            "output %y\n");
}

TEST_F(PassesTest, FoldingKnowsShapesWithoutKernels) {
  graph_.AddOutput(AddOp(graph_, "s", "Shape", {x_}));
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator_)),
            "input %x: float32[2]\n"
            "constant %s = int64[1]{2}\n"
            "output %s\n");
  EXPECT_EQ(evaluator_.calls, 0);
}

TEST_F(PassesTest, FoldingLearnsShapesOnTheWay) {
  const ValueId c = graph_.AddConstant("c", FloatsOf({3}, 1));
  const ValueId found = AddOp(graph_, "found", "Find", {c});
  const ValueId filled = AddOp(graph_, "filled", "Fill", {found});
  graph_.AddOutput(AddOp(graph_, "y", "Add", {graph_.AddInput("z", Floats({0, 1, 2})), filled}));
  EXPECT_THAT(After(NewFoldConstantsPass(evaluator_)),
              HasSubstr("constant %filled = float32[0,1,2]{}"));
}

TEST_F(PassesTest, FoldingSparesStatefulDeadAndKernelLessNodes) {
  const ValueId c = graph_.AddConstant("c", FloatsOf({2}, 3));
  graph_.AddOutput(AddOp(graph_, "random", "Random", {c}));
  graph_.AddOutput(AddOp(graph_, "missing", "Negate", {c}));
  AddOp(graph_, "dead", "Add", {c, c});
  evaluator_.missing = {"Negate"};
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator_)), before);
}

TEST_F(PassesTest, FoldingSparesBombs) {
  // 64 MiB and one element more.
  const ValueId size = AddInts(graph_, "size", {(kMaxFoldedBytes / 4) + 1});
  graph_.AddOutput(AddOp(graph_, "y", "Fill", {size}));
  const ValueId more = AddInts(graph_, "more", {int64_t{1} << 40, int64_t{1} << 20});
  graph_.AddOutput(AddOp(graph_, "z", "Fill", {more}));
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator_)), before);
  EXPECT_EQ(evaluator_.calls, 0);
}

// A kernel may walk an axis though there are no elements.
TEST_F(PassesTest, FoldingSparesLongTensorsWithoutElements) {
  graph_.AddOutput(AddOp(graph_, "y", "Fill", {AddInts(graph_, "size", {0, int64_t{1} << 40})}));
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator_)), before);
  EXPECT_EQ(evaluator_.calls, 0);
}

TEST_F(PassesTest, FoldingStopsWhenManyLargeResultsAddUp) {
  const ValueId size = AddInts(graph_, "size", {kMaxFoldedBytes / 4});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    graph_.AddOutput(AddOp(graph_, name, "Fill", {size}));
  }
  ASSERT_TRUE(NewFoldConstantsPass(evaluator_)->Run(graph_).ok());
  EXPECT_THAT(graph_.DebugString(),
              AllOf(HasSubstr("constant %d ="), HasSubstr("%e: float32[16777216] = test::Fill")));
}

// A kernel that breaks its shape function's promise.
class LyingEvaluator : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node&,
                                               const std::vector<Tensor>&) override {
    return std::vector<Tensor>{FloatsOf({3}, 1)};
  }
};

TEST_F(PassesTest, FoldingChecksWhatTheKernelMade) {
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {graph_.AddConstant("c", FloatsOf({2}, 3))}));
  LyingEvaluator evaluator;
  EXPECT_EQ(After(NewFoldConstantsPass(evaluator)),
            "INTERNAL: node 'y_node' (test::Negate): its kernel made float32[3]{1, 1, 1} for 'y', "
            "which its shape function says is float32[2]");
}

// ---- remove_dead_code

TEST_F(PassesTest, DeadCodeGoes) {
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {x_}));
  const ValueId c = graph_.AddConstant("c", FloatsOf({2}, 3));
  AddOp(graph_, "dead", "Negate", {AddOp(graph_, "dying", "Add", {x_, c})});
  graph_.AddInput("unused", Floats({1}));
  graph_.AddVariable("v", Floats({1}), Tensor(), true);
  EXPECT_EQ(After(NewRemoveDeadCodePass()),
            "input %x: float32[2]\n"
            "input %unused: float32[1]\n"
            "variable %v: float32[1] trainable\n"
            "%y: float32[2] = test::Negate(%x)  # y_node\n"
            "output %y\n");
}

TEST_F(PassesTest, UpdatesAndCommunicationAreAlive) {
  graph_.AddVariable("v", Floats({2}), Tensor(), true);
  graph_.SetVariableUpdate("v", AddOp(graph_, "new_v", "Negate", {x_}));
  Graph::NodeSpec send;
  send.domain = "test";
  send.op = "Send";
  send.inputs = {AddOp(graph_, "sent", "Negate", {x_})};
  graph_.AddNode(std::move(send));
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewRemoveDeadCodePass()), before);
}

TEST_F(PassesTest, UnusedOptionalOutputsAreDropped) {
  Graph::NodeSpec split;
  split.name = "split";
  split.domain = "test";
  split.op = "Split";
  split.inputs = {x_};
  split.outputs = {"first", "second"};
  const NodeId id = graph_.AddNode(split);
  graph_.AddOutput(graph_.node(id).outputs[0]);
  split.name = "other";
  split.outputs = {"unused", "used"};
  graph_.AddOutput(graph_.node(graph_.AddNode(split)).outputs[1]);
  ASSERT_TRUE(InferShapes(graph_).ok());
  EXPECT_EQ(After(NewRemoveDeadCodePass()),
            "input %x: float32[2]\n"
            "%first: float32[1], _ = test::Split(%x)  # split\n"
            "%unused: float32[1], %used: float32[1] = test::Split(%x)  # other\n"
            "output %first\n"
            "output %used\n");
}

// ---- merge_common_subexpressions

TEST_F(PassesTest, EqualNodesMergeInWholeChains) {
  const ValueId a = AddOp(graph_, "a", "Negate", {AddOp(graph_, "a0", "Negate", {x_})});
  const ValueId b = AddOp(graph_, "b", "Negate", {AddOp(graph_, "b0", "Negate", {x_})});
  graph_.AddOutput(AddOp(graph_, "y", "Add", {a, b}));
  EXPECT_EQ(After(NewMergeCommonSubexpressionsPass()),
            "input %x: float32[2]\n"
            "%a0: float32[2] = test::Negate(%x)  # a0_node\n"
            "%a: float32[2] = test::Negate(%a0)  # a_node\n"
            "%y: float32[2] = test::Add(%a, %a)  # y_node\n"
            "output %y\n");
}

TEST_F(PassesTest, IntegerConstantsMergeAndFloatOnesStayApart) {
  for (const char* name : {"y", "z"}) {
    const ValueId zero = AddInts(graph_, std::string("zero_") + name, {0});
    const ValueId bias = graph_.AddConstant(std::string("bias_") + name, FloatsOf({2}, 0));
    const ValueId shape = AddOp(graph_, std::string("s_") + name, "Gather", {zero, zero});
    graph_.AddOutput(AddOp(graph_, std::string("f_") + name, "Fill", {shape}));
    graph_.AddOutput(AddOp(graph_, name, "Add", {x_, bias}));
  }
  EXPECT_THAT(After(NewMergeCommonSubexpressionsPass()),
              AllOf(HasSubstr("%zero_y"), Not(HasSubstr("%zero_z")), Not(HasSubstr("%s_z")),
                    HasSubstr("%bias_y"), HasSubstr("%bias_z")));
}

TEST_F(PassesTest, WhatDiffersStays) {
  const auto relabel = [this](const std::string& name, int64_t size) {
    const ValueId value =
        AddOp(graph_, name, "Relabel", {x_}, {{"shape", std::vector<int64_t>{size, 1}}});
    AddOp(graph_, name + "_use", "Negate", {value});
    return value;
  };
  relabel("attribute", 1);
  relabel("base", 2);
  NodeOf(relabel("phase", 2)).phase = Phase::kBackward;
  NodeOf(relabel("stage", 2)).stage = StageId(1);
  AddOp(graph_, "random", "Random", {x_});
  AddOp(graph_, "random_too", "Random", {x_});
  const std::string before = graph_.DebugString();
  // The uses are all of different values, so nothing merges.
  EXPECT_EQ(After(NewMergeCommonSubexpressionsPass()), before);
}

TEST_F(PassesTest, GraphOutputsKeepTheirNames) {
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {x_}));
  graph_.AddOutput(AddOp(graph_, "z", "Negate", {x_}));
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewMergeCommonSubexpressionsPass()), before);
}

TEST_F(PassesTest, NodeWithMoreOutputsIsNotMergedIntoOneWithLess) {
  Graph::NodeSpec split;
  split.domain = "test";
  split.op = "Split";
  split.inputs = {x_};
  split.outputs = {"first"};
  const NodeId less = graph_.AddNode(split);
  split.outputs = {"first", "second"};
  const NodeId more = graph_.AddNode(split);
  split.outputs = {"", "second"};
  split.keep_empty_outputs = true;
  const NodeId some = graph_.AddNode(split);
  ASSERT_TRUE(InferShapes(graph_).ok());
  const ValueId covered = AddOp(graph_, "y", "Negate", {graph_.node(some).outputs[1]});
  graph_.AddOutput(covered);
  After(NewMergeCommonSubexpressionsPass());
  EXPECT_TRUE(graph_.is_live(less));
  EXPECT_TRUE(graph_.is_live(more));
  EXPECT_FALSE(graph_.is_live(some));
  EXPECT_EQ(NodeOf(covered).inputs[0], graph_.node(more).outputs[1]);
}

// ---- expand_functions

bool RunsAllButFunctions(const Node& node) {
  return node.op != "Subtract" && node.op != "Vanish" && node.op != "Unsure" &&
         node.op != "Endless";
}

TEST_F(PassesTest, ExpandingGoesDownToOpsThatRun) {
  graph_.AddOutput(AddOp(graph_, "y", "Vanish", {x_}));
  EXPECT_EQ(After(NewExpandFunctionsPass(RunsAllButFunctions)),
            "input %x: float32[2]\n"
            "%y_node/Subtract/Negate: float32[2] = test::Negate(%x)  # y_node/Subtract/Negate\n"
            "%y: float32[2] = test::Add(%x, %y_node/Subtract/Negate)  # y_node/Subtract/Add\n"
            "output %y\n");
}

TEST_F(PassesTest, ExpandedNodesNameTheNodeTheyComeFrom) {
  const ValueId y = AddOp(graph_, "y", "Vanish", {x_});
  NodeOf(y).phase = Phase::kUpdate;
  graph_.AddOutput(y);
  After(NewExpandFunctionsPass(RunsAllButFunctions));
  for (const NodeId id : graph_.node_ids()) {
    EXPECT_EQ(graph_.node(id).origin.forward_node, "y_node");
    EXPECT_EQ(graph_.node(id).phase, Phase::kUpdate);
  }
}

TEST_F(PassesTest, ExpandingLeavesWhatTheEngineRuns) {
  graph_.AddOutput(AddOp(graph_, "y", "Subtract", {x_, x_}));
  const std::string before = graph_.DebugString();
  EXPECT_EQ(After(NewExpandFunctionsPass([](const Node&) { return true; })), before);
}

TEST_F(PassesTest, ExpansionThatRefusesLeavesNothingBehind) {
  graph_.AddOutput(AddOp(graph_, "y", "Unsure", {x_}));
  const std::string before = graph_.DebugString();
  std::vector<absl::Status> refusals;
  const auto changed = ExpandFunctions(graph_, RunsAllButFunctions, &refusals);
  EXPECT_TRUE(changed.ok() && !*changed);
  EXPECT_EQ(graph_.DebugString(), before);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].message(), "node 'y_node' (test::Unsure): the rank of x is not known");
}

TEST_F(PassesTest, ExpansionIntoItselfEnds) {
  graph_.AddOutput(AddOp(graph_, "y", "Endless", {x_}));
  const auto changed = NewExpandFunctionsPass(RunsAllButFunctions)->Run(graph_);
  EXPECT_THAT(std::string(changed.status().message()), HasSubstr("expansions 32 levels deep"));
}

}  // namespace
}  // namespace weft
