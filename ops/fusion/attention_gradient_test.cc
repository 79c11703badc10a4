// Which gradients of attention become one node, and what stays as it is. That the node says the
// same, ops/kernels/cuda/attention/attention_gradient_dnn_test.cc holds against the rule.
#include "ops/fusion/attention_gradient.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using weft::testing::BuildGradientGraph;
using weft::testing::GradientGraph;
using weft::testing::OpCase;
using weft::testing::RandomTensor;

// Two samples; 4 heads of 5 queries, 7 keys, elements of 8 in queries and of 16 in values.
OpCase AttentionCase(bool packed, int64_t kv_heads, DType dtype = DType::kBfloat16) {
  OpCase made;
  made.op = "Attention";
  made.attributes = {{"is_causal", int64_t{1}}, {"scale", 0.3f}};
  if (packed) {
    made.attributes.Set("q_num_heads", int64_t{4});
    made.attributes.Set("kv_num_heads", kv_heads);
    made.inputs = {RandomTensor({2, 5, 32}, 1, -2, 2, dtype),
                   RandomTensor({2, 7, kv_heads * 8}, 2, -2, 2, dtype),
                   RandomTensor({2, 7, kv_heads * 16}, 3, -2, 2, dtype)};
  } else {
    made.inputs = {RandomTensor({2, 4, 5, 8}, 1, -2, 2, dtype),
                   RandomTensor({2, kv_heads, 7, 8}, 2, -2, 2, dtype),
                   RandomTensor({2, kv_heads, 7, 16}, 3, -2, 2, dtype)};
  }
  made.outputs = {true};
  return made;
}

class AttentionGradientTest : public ::testing::Test {
 protected:
  // A gradient graph whose outputs are the gradients of these inputs.
  void Build(const OpCase& op_case, const std::vector<int>& inputs = {0, 1, 2}) {
    auto made = BuildGradientGraph(op_case, inputs);
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
    for (const int i : inputs) {
      ASSERT_TRUE(made_.input_gradients[i].valid());
      graph().RenameValue(made_.input_gradients[i], "d" + std::to_string(i));
      graph().AddOutput(made_.input_gradients[i]);
    }
  }
  Graph& graph() { return *made_.graph; }
  ValueId Y() { return graph().node(made_.node).outputs[0]; }
  // A backward node that reads a value.
  void ReadBackward(ValueId value) {
    GraphBuilder builder(graph());
    builder.set_phase(Phase::kBackward);
    const ValueId read = builder.Op("Neg", {value});
    builder.Name(read, "read");
    graph().AddOutput(read);
    EXPECT_TRUE(builder.status().ok()) << builder.status();
  }
  // Behind nodes that were added to the forward pass.
  void PutAttentionOfTheGradientLast() {
    for (const NodeId id : graph().node_ids()) {
      const Node node = graph().node(id);
      if (node.op != "Attention" || node.phase != Phase::kBackward) continue;
      GraphBuilder builder(graph());
      builder.set_phase(Phase::kBackward);
      std::vector<bool> wanted;
      for (const ValueId output : node.outputs) wanted.push_back(output.valid());
      const std::vector<ValueId> outputs =
          builder.Ops("", node.op, node.inputs, node.attributes, wanted);
      ASSERT_TRUE(builder.status().ok()) << builder.status();
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (wanted[i]) graph().ReplaceUses(node.outputs[i], outputs[i]);
      }
      graph().RemoveNode(id);
      return;
    }
    ADD_FAILURE() << "no attention in the gradient";
  }
  ValueId OutputOf(const std::string& op, size_t i = 0) {
    for (const NodeId id : graph().node_ids()) {
      if (graph().node(id).op == op) return graph().node(id).outputs[i];
    }
    ADD_FAILURE() << "no " << op;
    return kNoValue;
  }

  int Join(const std::set<std::string>& kept = {}, const std::vector<int>& colors = {}) {
    EXPECT_TRUE(graph().Compact().ok());
    const auto takes = [&](const AttentionForm& form, const Node&) -> absl::StatusOr<bool> {
      forms_.push_back(form);
      return answer_;
    };
    const auto joined = JoinAttentionGradients(graph(), takes, kept, colors);
    EXPECT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(VerifyGraph(graph()).ok()) << VerifyGraph(graph());
    // Ids still are an order of execution.
    for (const NodeId id : graph().node_ids()) {
      for (const ValueId input : graph().node(id).inputs) {
        if (!input.valid() || graph().value(input).source != ValueSource::kNode) continue;
        EXPECT_LT(graph().value(input).producer, id) << graph().DebugString();
      }
    }
    return joined.value_or(-1);
  }
  std::vector<std::string> Ops() {
    std::vector<std::string> ops;
    for (const NodeId id : graph().node_ids()) ops.push_back(graph().node(id).op);
    return ops;
  }
  // Nothing changes.
  void ExpectStays(const std::set<std::string>& kept = {}, const std::vector<int>& colors = {}) {
    EXPECT_TRUE(graph().Compact().ok());
    const std::string before = graph().DebugString();
    EXPECT_EQ(Join(kept, colors), 0);
    EXPECT_EQ(graph().DebugString(), before);
  }

  GradientGraph made_;
  std::vector<AttentionForm> forms_;
  bool answer_ = true;
};

TEST_F(AttentionGradientTest, BecomesTwoNodesWhateverTheLayout) {
  for (const bool packed : {false, true}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      SCOPED_TRACE(std::to_string(packed) + " " + std::to_string(kv_heads));
      Build(AttentionCase(packed, kv_heads));
      EXPECT_EQ(Join(), 1);
      EXPECT_THAT(Ops(), UnorderedElementsAre("Attention", "AttentionWithSums", "AttentionGrad"))
          << graph().DebugString();
      const ValueId dq = *graph().FindValue("d0");
      const Node& grad = graph().node(graph().value(dq).producer);
      EXPECT_EQ(grad.op, kAttentionGradOp);
      EXPECT_EQ(grad.phase, Phase::kBackward);
      EXPECT_THAT(grad.outputs,
                  ElementsAre(dq, *graph().FindValue("d1"), *graph().FindValue("d2")));
      EXPECT_EQ(grad.inputs[kGradOfY], made_.output_gradients[0]);
      EXPECT_EQ(grad.inputs[kGradQuery], made_.inputs[0]);
      EXPECT_EQ(grad.inputs[kGradKey], made_.inputs[1]);
      EXPECT_EQ(grad.inputs[kGradValue], made_.inputs[2]);
      const ValueType& sums = graph().value(grad.inputs[kGradLogSums]).type;
      EXPECT_EQ(sums.dtype, DType::kFloat32);
      EXPECT_EQ(sums.shape, SymbolicShape(Shape{2, 4, 5}));
      ASSERT_FALSE(forms_.empty());
      EXPECT_EQ(forms_.back().q_heads, 4);
      EXPECT_EQ(forms_.back().kv_heads, kv_heads);
      EXPECT_EQ(forms_.back().scale, 0.3f);
      EXPECT_TRUE(forms_.back().causal);
    }
  }
}

// Shape functions agree with what the nodes had.
TEST_F(AttentionGradientTest, TypesAreInferredAsTheyWere) {
  for (const bool packed : {false, true}) {
    Build(AttentionCase(packed, 2));
    EXPECT_EQ(Join(), 1);
    const std::string before = graph().DebugString();
    const absl::Status inferred = InferShapes(graph());
    EXPECT_TRUE(inferred.ok()) << inferred;
    EXPECT_EQ(graph().DebugString(), before);
  }
}

TEST_F(AttentionGradientTest, TheScaleThatIsNotSaidIsThatOfTheSize) {
  OpCase plain = AttentionCase(false, 4);
  plain.attributes = {};
  Build(plain);
  EXPECT_EQ(Join(), 1);
  ASSERT_EQ(forms_.size(), 1);
  EXPECT_NEAR(forms_[0].scale, 0.35355339, 1e-7);  // 1 / sqrt(8)
  EXPECT_FALSE(forms_[0].causal);
}

// The size of a head need not divide by the number of heads.
TEST_F(AttentionGradientTest, HeadsApartHaveAnySize) {
  OpCase three = AttentionCase(false, 1);
  three.inputs[0] = RandomTensor({2, 3, 5, 8}, 1, -2, 2, DType::kBfloat16);
  Build(three);
  EXPECT_EQ(Join(), 1);
}

TEST_F(AttentionGradientTest, GradientsThatNobodyWantsAreLeftOut) {
  for (const bool packed : {false, true}) {
    Build(AttentionCase(packed, 2), {1});
    EXPECT_EQ(Join(), 1);
    const ValueId dk = *graph().FindValue("d1");
    EXPECT_THAT(graph().node(graph().value(dk).producer).outputs, ElementsAre(kNoValue, dk));
    Build(AttentionCase(packed, 2), {0, 2});
    EXPECT_EQ(Join(), 1);
    const ValueId dq = *graph().FindValue("d0");
    EXPECT_THAT(graph().node(graph().value(dq).producer).outputs,
                ElementsAre(dq, kNoValue, *graph().FindValue("d2")));
  }
}

TEST_F(AttentionGradientTest, TheForwardNodeGivesTheSumsWhereItsYLivesAnyway) {
  for (const bool packed : {false, true}) {
    Build(AttentionCase(packed, 2));
    ReadBackward(Y());
    EXPECT_EQ(Join(), 1);
    EXPECT_THAT(Ops(), UnorderedElementsAre("AttentionWithSums", "AttentionGrad", "Neg"));
    const Node& grad = graph().node(graph().value(*graph().FindValue("d0")).producer);
    const Node& forward = graph().node(graph().value(grad.inputs[kGradLogSums]).producer);
    EXPECT_EQ(forward.phase, Phase::kForward);
    EXPECT_EQ(grad.inputs[kGradY], forward.outputs[0]);
  }
}

// Heads are swapped and joined before a projection, whose gradient reads what that gives.
TEST_F(AttentionGradientTest, TheForwardNodeGivesTheSumsWhereItsTransposeLivesAnyway) {
  for (const std::string read : {"Transpose", "Reshape", "Neg"}) {
    SCOPED_TRACE(read);
    Build(AttentionCase(false, 2));
    GraphBuilder builder(graph());
    const std::vector<int64_t> perm = {0, 2, 3, 1};
    const ValueId swapped = builder.Op("Transpose", {Y()}, {{"perm", perm}});
    ValueId result = swapped;
    if (read == "Reshape") result = builder.Op(read, {swapped, builder.Ints({2, 5, 64})});
    if (read == "Neg") result = builder.Op(read, {swapped});
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    ReadBackward(result);
    PutAttentionOfTheGradientLast();
    EXPECT_EQ(Join(), 1);
    const Node& grad = graph().node(graph().value(*graph().FindValue("d0")).producer);
    const Node& gives = graph().node(graph().value(grad.inputs[kGradLogSums]).producer);
    EXPECT_EQ(gives.op, kAttentionWithSumsOp);
    const bool lives = read != "Neg";
    EXPECT_EQ(gives.phase, lives ? Phase::kForward : Phase::kBackward);
    const Node& y = graph().node(graph().value(grad.inputs[kGradY]).producer);
    EXPECT_EQ(y.op, lives ? "Transpose" : kAttentionWithSumsOp);
    EXPECT_EQ(y.phase, Phase::kBackward);
    if (!lives) continue;
    EXPECT_EQ(y.attributes.Ints("perm"), (std::vector<int64_t>{0, 3, 1, 2}));
    EXPECT_EQ(graph().node(graph().value(y.inputs[0]).producer).phase, Phase::kForward);
    EXPECT_EQ(y.outputs.size(), 1u);
  }
}

TEST_F(AttentionGradientTest, StaysWhereAValueBetweenIsWanted) {
  Build(AttentionCase(true, 2));
  ReadBackward(OutputOf("SoftmaxGrad"));
  ExpectStays();
  Build(AttentionCase(false, 4));
  graph().RenameValue(OutputOf("SoftmaxGrad"), "between");
  ExpectStays({"between"});
  EXPECT_EQ(Join({"another"}), 1);
}

TEST_F(AttentionGradientTest, StaysWhereTheDeviceHasNoPlan) {
  Build(AttentionCase(true, 4));
  answer_ = false;
  ExpectStays();
  EXPECT_EQ(forms_.size(), 1);
}

TEST_F(AttentionGradientTest, StaysAcrossActions) {
  Build(AttentionCase(true, 4));
  ASSERT_TRUE(graph().Compact().ok());
  std::vector<int> colors(graph().node_capacity());
  colors[graph().value(OutputOf("SoftmaxGrad")).producer.value] = 1;
  ExpectStays({}, colors);
  graph().node(graph().value(OutputOf("SoftmaxGrad")).producer).phase = Phase::kUpdate;
  ExpectStays();
}

TEST_F(AttentionGradientTest, OtherAttentionStays) {
  Build(AttentionCase(false, 4, DType::kFloat32));
  ExpectStays();
  OpCase masked = AttentionCase(false, 4);
  masked.inputs.push_back(RandomTensor({5, 7}, 4, -1, 1, DType::kBfloat16));
  Build(masked);
  ExpectStays();
  for (const char* const name : {"left_window_size", "right_window_size"}) {
    OpCase window = AttentionCase(false, 4);
    window.attributes.Set(name, int64_t{2});
    Build(window);
    ExpectStays();
  }
  OpCase capped = AttentionCase(false, 4);
  capped.attributes.Set("softcap", 1.5f);
  Build(capped);
  ExpectStays();
  // A gradient of the scores themselves.
  OpCase scores = AttentionCase(false, 4);
  scores.outputs = {true, false, false, true};
  Build(scores);
  ExpectStays();
  EXPECT_TRUE(forms_.empty());
}

TEST_F(AttentionGradientTest, AnErrorOfTheDeviceComesThrough) {
  Build(AttentionCase(false, 4));
  ASSERT_TRUE(graph().Compact().ok());
  const auto joined = JoinAttentionGradients(
      graph(), [](const AttentionForm&, const Node&) -> absl::StatusOr<bool> {
        return absl::FailedPreconditionError("no library");
      });
  EXPECT_EQ(joined.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AttentionGradientTest, OneFormIsAskedAboutOnce) {
  Build(AttentionCase(true, 2));
  // The same attention and its gradient once more, over the same inputs.
  const OpCase op_case = AttentionCase(true, 2);
  auto again = BuildGradientGraph(op_case, {0, 1, 2});
  ASSERT_TRUE(again.ok());
  Graph& other = *again->graph;
  std::map<ValueId, ValueId> here;
  for (size_t i = 0; i < 3; ++i) here[again->inputs[i]] = made_.inputs[i];
  here[again->output_gradients[0]] = made_.output_gradients[0];
  for (const NodeId id : other.node_ids()) {
    const Node& node = other.node(id);
    Graph::NodeSpec spec;
    spec.domain = node.domain;
    spec.op = node.op;
    spec.attributes = node.attributes;
    spec.phase = node.phase;
    spec.keep_empty_outputs = true;
    for (const ValueId input : node.inputs) {
      if (input.valid() && !here.contains(input)) {
        here[input] = graph().AddConstant("", other.value(input).constant);
      }
      spec.inputs.push_back(input.valid() ? here[input] : kNoValue);
    }
    for (const ValueId output : node.outputs) spec.outputs.push_back(output.valid() ? "v" : "");
    const NodeId copy = graph().AddNode(std::move(spec));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].valid()) continue;
      const ValueId output = graph().node(copy).outputs[i];
      graph().value(output).type = other.value(node.outputs[i]).type;
      here[node.outputs[i]] = output;
    }
  }
  for (const ValueId gradient : again->input_gradients) graph().AddOutput(here[gradient]);
  EXPECT_EQ(Join(), 2);
  EXPECT_EQ(forms_.size(), 1);
}

}  // namespace
}  // namespace weft
