#include "onnx_import/codec/operator_check.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/policy/operator_policy.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void AddNode(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const std::string& domain,
             const std::string& op) {
  onnx::NodeProto& node = *nodes.Add();
  node.set_name("the " + op);
  node.set_domain(domain);
  node.set_op_type(op);
}

class OperatorCheckTest : public ::testing::Test {
 protected:
  void TearDown() override { SetOperatorPolicy({}); }

  static void Set(const std::vector<std::string>& allow, const std::vector<std::string>& deny) {
    SetOperatorPolicy(OperatorPolicy::Create(allow, deny).value());
  }
  static std::string ErrorOf(const onnx::ModelProto& model) {
    const absl::Status status = CheckOperators(model);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    return std::string(status.message());
  }
  // A model of one Relu, with a node of `faulty::Evil` in `nodes`.
  static onnx::ModelProto Harmless() {
    onnx::ModelProto model;
    AddNode(*model.mutable_graph()->mutable_node(), "", "Relu");
    return model;
  }
  static void ExpectEvilFound(const onnx::ModelProto& model) {
    Set({}, {"faulty::*"});
    EXPECT_THAT(ErrorOf(model),
                AllOf(HasSubstr("node 'the Evil' (Evil): operator 'faulty::Evil' is denied"),
                      HasSubstr("--deny-ops 'faulty::*'")));
    Set({"*"}, {});
    EXPECT_THAT(ErrorOf(model), HasSubstr("operator 'faulty::Evil' is not allowed"));
    Set({"*", "faulty::Evil"}, {});
    EXPECT_TRUE(CheckOperators(model).ok());
  }
};

TEST_F(OperatorCheckTest, WithoutAPolicyAllGoes) {
  onnx::ModelProto model = Harmless();
  AddNode(*model.mutable_graph()->mutable_node(), "faulty", "Evil");
  EXPECT_TRUE(CheckOperators(model).ok());
}

TEST_F(OperatorCheckTest, FindsANodeOfTheGraph) {
  onnx::ModelProto model = Harmless();
  AddNode(*model.mutable_graph()->mutable_node(), "faulty", "Evil");
  ExpectEvilFound(model);
}

TEST_F(OperatorCheckTest, OnnxsOwnDomainMayBeSpelledOut) {
  onnx::ModelProto model;
  AddNode(*model.mutable_graph()->mutable_node(), "ai.onnx", "Loop");
  Set({}, {"Loop"});
  EXPECT_THAT(ErrorOf(model), HasSubstr("operator 'Loop' is denied"));
}

TEST_F(OperatorCheckTest, FindsItInSubgraphsOfSubgraphs) {
  for (const bool in_list : {false, true}) {
    onnx::ModelProto model = Harmless();
    onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
    for (int depth = 0; depth < 20; ++depth) {
      onnx::AttributeProto& attribute = *node->add_attribute();
      onnx::GraphProto& body = in_list ? *attribute.add_graphs() : *attribute.mutable_g();
      node = body.add_node();
      node->set_op_type("If");
    }
    AddNode(*node->add_attribute()->mutable_g()->mutable_node(), "faulty", "Evil");
    ExpectEvilFound(model);
  }
}

TEST_F(OperatorCheckTest, FindsItInFunctionsThatNobodyCalls) {
  onnx::ModelProto model = Harmless();
  AddNode(*model.add_functions()->mutable_node(), "faulty", "Evil");
  ExpectEvilFound(model);
}

TEST_F(OperatorCheckTest, FindsItInDefaultsOfFunctions) {
  onnx::ModelProto model = Harmless();
  AddNode(*model.add_functions()->add_attribute_proto()->mutable_g()->mutable_node(), "faulty",
          "Evil");
  ExpectEvilFound(model);
}

TEST_F(OperatorCheckTest, FindsItInTheModelsOwnTraining) {
  for (const bool initialization : {false, true}) {
    onnx::ModelProto model = Harmless();
    onnx::TrainingInfoProto& info = *model.add_training_info();
    onnx::GraphProto& graph =
        initialization ? *info.mutable_initialization() : *info.mutable_algorithm();
    AddNode(*graph.mutable_node(), "faulty", "Evil");
    ExpectEvilFound(model);
  }
}

// The function's nodes are asked for, and its name is none of an operator.
TEST_F(OperatorCheckTest, ACallOfAFunctionIsNoOperator) {
  onnx::ModelProto model = Harmless();
  AddNode(*model.mutable_graph()->mutable_node(), "local", "Twice");
  onnx::FunctionProto& function = *model.add_functions();
  function.set_domain("local");
  function.set_name("Twice");
  AddNode(*function.mutable_node(), "", "Add");
  Set({"Relu", "Add"}, {});
  EXPECT_TRUE(CheckOperators(model).ok());
  function.set_overload("other");
  EXPECT_THAT(ErrorOf(model), HasSubstr("operator 'local::Twice' is not allowed"));
}

}  // namespace
}  // namespace weft
