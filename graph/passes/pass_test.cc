#include "graph/passes/pass.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::TestEvaluator;

// A pass that does what the test says.
class LambdaPass final : public Pass {
 public:
  using Fn = std::function<absl::StatusOr<bool>(Graph&)>;
  LambdaPass(std::string name, Fn fn) : name_(std::move(name)), fn_(std::move(fn)) {}
  std::string_view name() const override { return name_; }
  absl::StatusOr<bool> Run(Graph& graph) override { return fn_(graph); }

 private:
  std::string name_;
  Fn fn_;
};

std::unique_ptr<Pass> Changes(std::string name) {
  return std::make_unique<LambdaPass>(std::move(name), [](Graph&) { return true; });
}
std::unique_ptr<Pass> Keeps(std::string name) {
  return std::make_unique<LambdaPass>(std::move(name), [](Graph&) { return false; });
}
absl::StatusOr<bool> BreakInput(Graph& graph) {
  graph.node(NodeId(0)).inputs[0] = ValueId(99);
  return false;
}

Graph OneNode() {
  Graph graph;
  graph.AddOutput(AddOp(graph, "y", "Negate", {graph.AddInput("x", Floats({1}))}));
  return graph;
}

TEST(PassPipeline, ReportsAndDumpsWhatChanged) {
  Graph graph = OneNode();
  std::vector<std::string> dumped;
  PassPipeline pipeline;
  pipeline.Add(Changes("first")).Add(Keeps("second")).Add(Changes("third"));
  pipeline.DumpAfterEach([&](std::string_view pass, const Graph&) {
    dumped.emplace_back(pass);
    return absl::OkStatus();
  });
  const auto changed = pipeline.Run(graph);
  ASSERT_TRUE(changed.ok());
  EXPECT_THAT(*changed, ElementsAre("first", "third"));
  EXPECT_THAT(dumped, ElementsAre("first", "third"));
}

TEST(PassPipeline, AnErrorOfADumpEndsTheRun) {
  Graph graph = OneNode();
  int seen = 0;
  PassPipeline pipeline;
  pipeline.Add(Changes("first")).Add(Changes("second"));
  pipeline.DumpAfterEach([&](std::string_view, const Graph&) {
    ++seen;
    return absl::ResourceExhaustedError("disk full");
  });
  EXPECT_EQ(pipeline.Run(graph).status(), absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(seen, 1);
}

TEST(PassPipeline, DisabledPassesDoNotRun) {
  Graph graph = OneNode();
  PassPipeline pipeline;
  pipeline.Add(Changes("first")).Add(Changes("second")).Disable({"first"});
  EXPECT_THAT(*pipeline.Run(graph), ElementsAre("second"));
}

TEST(PassPipeline, DisablingAnUnknownPassIsAnError) {
  Graph graph = OneNode();
  PassPipeline pipeline;
  pipeline.Add(Changes("first")).Disable({"frist"});
  EXPECT_EQ(pipeline.Run(graph).status().ToString(),
            "INVALID_ARGUMENT: there is no pass 'frist' to disable; the passes are first");
}

TEST(PassPipeline, BrokenGraphAtTheStartIsNoPassesFault) {
  Graph graph = OneNode();
  ASSERT_TRUE(BreakInput(graph).ok());
  PassPipeline pipeline;
  pipeline.Add(Keeps("first"));
  EXPECT_EQ(pipeline.Run(graph).status().ToString(),
            "INTERNAL: before the first pass: invariant 1: node 'y_node' (test::Negate): input 0 "
            "(value 99) is no value of the graph");
}

TEST(PassPipeline, PassThatBreaksAnInvariantIsNamedWithIt) {
  Graph graph = OneNode();
  PassPipeline pipeline;
  pipeline.Add(Keeps("first")).Add(std::make_unique<LambdaPass>("breaker", BreakInput));
  EXPECT_EQ(
      pipeline.Run(graph).status().ToString(),
      "INTERNAL: after pass breaker: invariant 1: node 'y_node' (test::Negate): input 0 (value "
      "99) is no value of the graph");
}

TEST(PassPipeline, ErrorOfAPassKeepsItsCode) {
  Graph graph = OneNode();
  PassPipeline pipeline;
  pipeline.Add(std::make_unique<LambdaPass>(
      "refuser", [](Graph&) { return absl::InvalidArgumentError("no"); }));
  EXPECT_EQ(pipeline.Run(graph).status().ToString(), "INVALID_ARGUMENT: pass refuser: no");
}

TEST(SimplifyPipeline, NamesItsPassesAndLeavesASimpleGraphAlone) {
  TestEvaluator evaluator;
  PassPipeline pipeline = SimplifyPipeline(evaluator);
  EXPECT_THAT(pipeline.pass_names(),
              ElementsAre("infer_shapes", "fold_constants", "merge_common_subexpressions",
                          "remove_dead_code"));
  Graph graph = OneNode();
  EXPECT_THAT(*pipeline.Run(graph), IsEmpty());
}

}  // namespace
}  // namespace weft
