#include "onnx_import/importer.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/node_bodies.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/test_models.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Debug(const absl::StatusOr<ImportedModel>& model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->graph.DebugString() : "";
}

TEST(Import, KeepsInputsNodesAndOutputs) {
  const std::string text = Debug(Import(ModelOf(17,
                                                "agraph (float[N, 2] x) => (float[N, 2] y) {"
                                                "  h = test.Twist <angle = 2, wide = [1, 2]> (x)"
                                                "  y = test.Twist (h, x) }")));
  EXPECT_THAT(text, HasSubstr("input %x: float32[N,2]"));
  EXPECT_THAT(text, HasSubstr("test::Twist(%x) {angle=2, wide=[1,2]}  # Twist_0"));
  EXPECT_THAT(text, HasSubstr("test::Twist(%h, %x)  # Twist_1"));
  EXPECT_THAT(text, HasSubstr("output %y"));
}

TEST(Import, MakesFloatInitializersVariablesOnlyWhenAsked) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}, int64[1] i = {0}> {"
              "  y = test.Twist (x, w, i) }");
  EXPECT_THAT(Debug(Import(model)),
              AllOf(HasSubstr("variable %w: float32[2]"), HasSubstr("constant %i = int64[1]{0}")));
  const auto constants = Import(model, {.parameters_as_variables = false});
  EXPECT_THAT(Debug(constants), HasSubstr("constant %w = float32[2]{1, 2}"));
  ASSERT_EQ(constants->parameters.size(), 1u);
  EXPECT_EQ(constants->parameters[0].name, "w");
}

TEST(Import, TakesOtherInputShapesThanTheFileDeclares) {
  const onnx::ModelProto model =
      ModelOf(17, "agraph (float[1, 2] x) => (float[1, 2] y) { h = Relu (x)  y = Transpose (h) }");
  EXPECT_THAT(Debug(Import(model, {.input_shapes = {{"x", Shape{5, 3, 2}}}})),
              HasSubstr("input %x: float32[5,3,2]"));
}

TEST(Import, TakesConstantNodesAsParameters) {
  const auto model = Import(ModelOf(17,
                                    "agraph (float[2] x) => (float[2] y) {"
                                    "  w = Constant <value = float[2] {3, 4}> ()"
                                    "  y = test.Twist (x, w) }"));
  EXPECT_THAT(Debug(model), HasSubstr("variable %w: float32[2]"));
  ASSERT_EQ(model->parameters.size(), 1u);
  EXPECT_EQ(model->parameters[0].storage, ParameterStorage::kConstantNode);
  EXPECT_EQ(model->parameters[0].index, 0);
  EXPECT_EQ(model->graph.num_nodes(), 1);
}

TEST(Import, TakesInputsWithInitializersAsParametersOnly) {
  const auto model =
      Import(ModelOf(17,
                     "agraph (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> {"
                     "  y = test.Twist (x, w) }"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.inputs().size(), 1u);
  EXPECT_TRUE(model->parameters[0].also_graph_input);
}

TEST(Import, ReadsEveryKindOfConstant) {
  const std::string text = Debug(Import(
      ModelOf(17,
              "agraph (float[2] x) => (float[2] y) {"
              "  a = Constant <value_int = 3> ()  b = Constant <value_ints = [4, 5]> ()"
              "  c = Constant <value_string = \"s\"> ()  d = Constant <value_strings = [\"t\"]> ()"
              "  e = Constant <value_float = 1.5> ()  f = Constant <value_floats = [2.5]> ()"
              "  y = test.Twist (x, a, b, c, d, e, f) }")));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("constant %a = int64[]{3}"), HasSubstr("constant %b = int64[2]{4, 5}"),
            HasSubstr("constant %c = string[]{\"s\"}"), HasSubstr("constant %d = string[1]{\"t\"}"),
            HasSubstr("variable %e: float32[]"), HasSubstr("variable %f: float32[1]")));
}

TEST(Import, MakesSparseConstantsDense) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[2] x) => (float[2] y) {"
                                   "  s = Constant <value_int = 3> ()"
                                   "  y = test.Twist (x, s) }");
  onnx::AttributeProto& attribute = *model.mutable_graph()->mutable_node(0)->mutable_attribute(0);
  attribute.Clear();
  attribute.set_name("sparse_value");
  attribute.set_type(onnx::AttributeProto::SPARSE_TENSOR);
  onnx::SparseTensorProto& sparse = *attribute.mutable_sparse_tensor();
  sparse.add_dims(2);
  sparse.add_dims(2);
  sparse.mutable_values()->set_data_type(1);
  sparse.mutable_values()->add_dims(1);
  sparse.mutable_values()->add_float_data(7);
  sparse.mutable_indices()->set_data_type(7);
  sparse.mutable_indices()->add_dims(1);
  sparse.mutable_indices()->add_int64_data(2);
  EXPECT_THAT(Debug(Import(model)), HasSubstr("constant %s = float32[2,2]{0, 0, 7, 0}"));
  sparse.mutable_indices()->set_int64_data(0, 4);
  EXPECT_THAT(ImportError(model), HasSubstr("index 0 of a sparse tensor lies outside its shape"));
}

TEST(Import, SortsNodes) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[2] x) => (float[2] y) {"
                                   "  h = test.First (x)  y = test.Second (h) }");
  model.mutable_graph()->mutable_node()->SwapElements(0, 1);
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.node(NodeId(0)).op, "First");
  EXPECT_EQ(imported->graph.node(NodeId(0)).name, "First_1");
}

TEST(Import, KeepsOriginsOfNodesAndValues) {
  const auto model =
      Import(ModelOf(17, "agraph (float[2] x) => (float[2] y) { y = test.Twist (x) }"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.node(NodeId(0)).origin.forward_node, "Twist_0");
  const ValueDef& y = model->graph.value(*model->graph.FindValue("y"));
  EXPECT_EQ(y.origin, (Origin{"Twist_0", "y", false}));
}

TEST(Import, InlinesFunctions) {
  const std::string text = Debug(Import(
      ModelFromText("<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1, \"test\" : 1]>\n"
                    "agraph (float[2] x) => (float[2] y, float[2] z) {"
                    "  y = local.twice <angle = 3> (x)  z = local.twice (y) }\n"
                    "<opset_import: [\"test\" : 1], domain: \"local\">\n"
                    "twice <angle> (a) => (b) { h = test.Twist <by : int = @angle> (a)  b = "
                    "test.Twist (h, h) }")));
  EXPECT_THAT(text, HasSubstr("%twice_0/h: invalid[unknown rank] = test::Twist(%x) {by=3}"));
  EXPECT_THAT(text, HasSubstr("%y: float32[2] = test::Twist(%twice_0/h, %twice_0/h)"));
  EXPECT_THAT(text, HasSubstr("test::Twist(%y)  # twice_1/Twist_0"));
}

TEST(Import, RefusesRecursiveFunctions) {
  EXPECT_THAT(
      ImportError(ModelFromText(
          "<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1]>\n"
          "agraph (float[2] x) => (float[2] y) { y = local.f (x) }\n"
          "<opset_import: [\"local\" : 1], domain: \"local\"> f (a) => (b) { b = local.g (a) }"
          "<opset_import: [\"local\" : 1], domain: \"local\"> g (a) => (b) { b = local.f (a) }")),
      HasSubstr("function 'f' calls itself ('f' calls 'g')"));
}

TEST(Import, RefusesFunctionsThatGrowWithoutEnd) {
  std::string text =
      "<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1]>\n"
      "agraph (float[2] x) => (float[2] y) { y = local.f0 (x) }\n";
  for (int i = 0; i < 28; ++i) {
    absl::StrAppend(&text, "<opset_import: [\"local\" : 1, \"test\" : 1], domain: \"local\"> f", i,
                    " (a) => (b) { c = local.f", i + 1, " (a)  b = local.f", i + 1, " (c) }\n");
  }
  absl::StrAppend(&text,
                  "<opset_import: [\"local\" : 1, \"test\" : 1], domain: \"local\"> f28 (a) => (b) "
                  "{ b = test.Twist (a) }");
  EXPECT_THAT(ImportError(ModelFromText(text)), HasSubstr("nodes once its functions are inlined"));
}

onnx::ModelProto ModelWithSubgraph() {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (bool c, float[2] x) => (float[2] y) {"
                                   "  h = test.Twist (x)  y = If (c) }");
  onnx::AttributeProto& branch = *model.mutable_graph()->mutable_node(1)->add_attribute();
  branch.set_name("then_branch");
  branch.set_type(onnx::AttributeProto::GRAPH);
  onnx::NodeProto& node = *branch.mutable_g()->add_node();
  node.set_op_type("Inside");
  node.set_domain("test");
  node.add_input("h");
  node.add_input("x");
  node.add_output("z");
  branch.mutable_g()->add_output()->set_name("z");
  return model;
}

TEST(Import, TurnsWhatASubgraphTakesFromOutsideIntoInputs) {
  const auto model = Import(ModelWithSubgraph());
  ASSERT_TRUE(model.ok()) << model.status();
  const Node& branch = model->graph.node(NodeId(1));
  EXPECT_EQ(branch.inputs.size(), 3u);
  EXPECT_THAT(branch.attributes.Strings("weft.captures.then_branch"), ElementsAre("h", "x"));
  const auto& graph = std::get<std::shared_ptr<Graph>>(*branch.attributes.Find("then_branch"));
  EXPECT_THAT(graph->DebugString(), HasSubstr("test::Inside(%h, %x)"));
}

// graph/node_bodies.h finds them so.
TEST(Import, OrdersCapturesByTheNamesOfTheBodies) {
  onnx::ModelProto model = ModelWithSubgraph();
  onnx::AttributeProto& branch = *model.mutable_graph()->mutable_node(1)->add_attribute();
  branch = model.graph().node(1).attribute(0);
  branch.set_name("else_branch");
  branch.mutable_g()->mutable_node(0)->mutable_input()->RemoveLast();  // h alone
  model.mutable_graph()
      ->mutable_node(1)
      ->mutable_attribute(0)
      ->mutable_g()
      ->mutable_node(0)
      ->set_input(0, "x");  // x, x
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Graph& graph = imported->graph;
  const Node& node = graph.node(NodeId(1));
  const std::vector<NodeBody> bodies = BodiesOf(node);
  ASSERT_EQ(bodies.size(), 2u);
  EXPECT_EQ(bodies[0].name, "else_branch");
  EXPECT_EQ(graph.value(node.inputs[bodies[0].first_capture]).name, "h");
  EXPECT_EQ(graph.value(node.inputs[bodies[1].first_capture]).name, "x");
  EXPECT_EQ(NumOwnInputs(node), 1);
}

TEST(Import, KeepsAttributesItCannotHoldEncoded) {
  onnx::ModelProto model =
      ModelOf(17, "agraph (float[2] x) => (float[2] y) { y = test.Twist <t = 1> (x) }");
  onnx::AttributeProto& attribute = *model.mutable_graph()->mutable_node(0)->mutable_attribute(0);
  attribute.clear_i();
  attribute.set_type(onnx::AttributeProto::TYPE_PROTO);
  attribute.mutable_tp()->mutable_tensor_type()->set_elem_type(1);
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.node(NodeId(0)).attributes.String("weft.encoded.t", ""),
            attribute.SerializeAsString());
}

// ---- Operator sets that are not known yet.

TEST(Import, TakesAModelOfALaterOperatorSet) {
  const char* const kRelu = "agraph (float[2] x) => (float[2] y) { y = Relu (x) }";
  const auto later = Import(ModelOf(99, kRelu));
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->unknown_opset, 99);
  EXPECT_EQ(later->graph.node(NodeId(0)).op, "Relu");
  const auto newest = Import(ModelOf(static_cast<int>(KnownOpsets().newest), kRelu));
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->unknown_opset, 0);
}

TEST(Import, SeesALaterOperatorSetOfAFunction) {
  onnx::ModelProto model =
      ModelOf(17, "agraph (float[2] x) => (float[2] y) { y = test.Twist (x) }");
  onnx::FunctionProto& function = *model.add_functions();
  function.set_domain("test");
  function.set_name("Twist");
  function.add_input("a");
  function.add_output("b");
  onnx::NodeProto& node = *function.add_node();
  node.set_op_type("Relu");
  node.add_input("a");
  node.add_output("b");
  function.add_opset_import()->set_version(40);
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->unknown_opset, 40);
}

// ---- What is refused, and how it is said. Each case breaks one thing of a good model.

constexpr char kGood[] =
    "agraph (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> {"
    "  h = test.Twist <angle = 2> (x, w)  y = test.Twist (h) }";

struct BadCase {
  const char* name;
  std::function<void(onnx::ModelProto&)> edit;
  const char* message;
};

class Refuses : public ::testing::TestWithParam<BadCase> {};

TEST_P(Refuses, WithFilePlaceAndReason) {
  onnx::ModelProto model = ModelOf(17, kGood);
  GetParam().edit(model);
  const std::string error = ImportError(model);
  EXPECT_THAT(error, StartsWith("model 'test.onnx': "));
  EXPECT_THAT(error, HasSubstr(GetParam().message));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

onnx::GraphProto& G(onnx::ModelProto& model) { return *model.mutable_graph(); }
onnx::TensorProto& W(onnx::ModelProto& model) { return *G(model).mutable_initializer(0); }
onnx::NodeProto& First(onnx::ModelProto& model) { return *G(model).mutable_node(0); }

const BadCase kBadCases[] = {
    {"NoGraph", [](auto& m) { m.clear_graph(); }, "it has no graph"},
    {"OldIr", [](auto& m) { m.set_ir_version(2); }, "ir_version is 2, expected 3 to 14"},
    {"NewIr", [](auto& m) { m.set_ir_version(99); }, "export it for an older ONNX release"},
    {"NoOpset", [](auto& m) { m.clear_opset_import(); }, "it imports no operator set"},
    {"OpsetTwice",
     [](auto& m) {
       *m.add_opset_import() = m.opset_import(0);
       m.mutable_opset_import(m.opset_import_size() - 1)->set_version(13);
     },
     "operator set 'ai.onnx' is imported twice, with versions 17 and 13"},
    {"NegativeOpset", [](auto& m) { m.mutable_opset_import(1)->set_version(-1); },
     "operator set 'test' has version -1"},
    {"UnknownDomain", [](auto& m) { First(m).set_domain("other"); },
     "node 0 (Twist, unnamed, output 'h'): the model imports no operator set 'other'"},
    {"OwnDomain",
     [](auto& m) {
       auto& own = *m.add_opset_import();
       own.set_domain("ai.weft");
       own.set_version(1);
       First(m).set_domain("ai.weft");
       First(m).set_op_type("ReluGrad");
     },
     "node 0 (ReluGrad, unnamed, output 'h'): operators of the domain 'ai.weft' are made by Weft"},
    {"OldOpset",
     [](auto& m) {
       m.mutable_opset_import(0)->set_version(0);
       First(m).clear_domain();
     },
     "has version 0, expected 1 to"},
    {"NoOp", [](auto& m) { First(m).clear_op_type(); }, "it has no op_type"},
    {"Dangling", [](auto& m) { First(m).set_input(0, "q"); },
     "its input 'q' is no graph input, no initializer and no output of any node"},
    {"Cycle", [](auto& m) { First(m).set_input(0, "y"); }, "a cycle of 2 nodes"},
    {"SelfCycle", [](auto& m) { First(m).set_input(0, "h"); }, "a cycle of 1 node "},
    {"DefinedTwice", [](auto& m) { First(m).set_output(0, "x"); },
     "its output 'x' is already defined"},
    {"InputTwice", [](auto& m) { *G(m).add_input() = G(m).input(0); },
     "graph input 'x' occurs twice"},
    {"UnnamedInput", [](auto& m) { G(m).mutable_input(0)->clear_name(); }, "input 0 has no name"},
    {"InitializerTwice", [](auto& m) { *G(m).add_initializer() = G(m).initializer(0); },
     "initializer 'w' occurs twice"},
    {"MissingOutput", [](auto& m) { G(m).mutable_output(0)->set_name("q"); },
     "graph output 'q' is defined by no node"},
    {"NegativeDim", [](auto& m) { W(m).set_dims(0, -2); }, "initializer 'w': "},
    {"HugeDim", [](auto& m) { W(m).set_dims(0, int64_t{1} << 41); }, "initializer 'w': "},
    {"Overflow",
     [](auto& m) {
       for (int i = 0; i < 3; ++i) W(m).add_dims(int64_t{1} << 30);
     },
     "initializer 'w': "},
    {"HighRank",
     [](auto& m) {
       for (int i = 0; i < 17; ++i) W(m).add_dims(1);
     },
     "initializer 'w': "},
    {"ShortRawData",
     [](auto& m) {
       W(m).clear_float_data();
       W(m).set_raw_data("1234");
     },
     "initializer 'w': raw_data has 4 bytes, expected 8 for float32[2]"},
    {"RawAndTyped", [](auto& m) { W(m).set_raw_data("12345678"); },
     "has both raw_data and float_data"},
    {"WrongTyped", [](auto& m) { W(m).set_data_type(7); },
     "int64[2] has its elements in float_data, expected int64_data or raw_data"},
    {"TooFewTyped", [](auto& m) { W(m).mutable_float_data()->RemoveLast(); },
     "float_data has 1 elements, expected 2 for float32[2]"},
    {"NoData", [](auto& m) { W(m).clear_float_data(); },
     "float32[2] has no data, expected 2 elements; was the model exported without its weights?"},
    {"UnknownDType", [](auto& m) { W(m).set_data_type(77); }, "data_type is 77, expected 1 to 28"},
    {"ExternalInMemory",
     [](auto& m) {
       W(m).clear_float_data();
       W(m).set_data_location(onnx::TensorProto::EXTERNAL);
     },
     "this model has no folder to look in"},
    {"Segment", [](auto& m) { W(m).mutable_segment(); }, "stored in segments"},
    {"UnknownInputDType",
     [](auto& m) {
       G(m).mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(99);
     },
     "graph input 'x': elem_type is 99"},
    {"NegativeInputDim",
     [](auto& m) {
       auto& type = *G(m).mutable_input(0)->mutable_type()->mutable_tensor_type();
       type.mutable_shape()->mutable_dim(1)->set_dim_value(-7);
     },
     "graph input 'x': dimension 1 has size -7"},
    {"MapInput", [](auto& m) { G(m).mutable_input(0)->mutable_type()->mutable_map_type(); },
     "graph input 'x': its type is a map whose keys are of type 0, neither 7 (int64) nor 8"},
    {"MapOfSequences",
     [](auto& m) {
       auto& map = *G(m).mutable_input(0)->mutable_type()->mutable_map_type();
       map.set_key_type(7);
       map.mutable_value_type()->mutable_sequence_type();
     },
     "graph input 'x': its type is a map of other than tensors"},
    {"AttributeTwice", [](auto& m) { *First(m).add_attribute() = First(m).attribute(0); },
     "attribute 'angle' occurs twice"},
    {"AttributeOfTwoKinds", [](auto& m) { First(m).mutable_attribute(0)->set_f(1); },
     "attribute 'angle': its type is INT but it holds a value of another kind"},
    {"AttributeWithoutValue",
     [](auto& m) {
       First(m).mutable_attribute(0)->clear_i();
       First(m).mutable_attribute(0)->set_type(onnx::AttributeProto::TENSOR);
     },
     "attribute 'angle': its type is TENSOR but it holds no value"},
    {"AttributeReference", [](auto& m) { First(m).mutable_attribute(0)->set_ref_attr_name("q"); },
     "it refers to the function attribute 'q' but is not in a function"},
    {"BadConstant",
     [](auto& m) {
       First(m).clear_domain();
       First(m).clear_input();
       First(m).set_op_type("Constant");
     },
     "attribute 'angle': it is INT, expected value (TENSOR)"},
    {"ControlCharacters", [](auto& m) { First(m).set_input(0, std::string("q\n\x1b[31m\xff", 8)); },
     "its input 'q\\n\\x1b[31m\\xff' is no graph input"},
};

INSTANTIATE_TEST_SUITE_P(BadModels, Refuses, ::testing::ValuesIn(kBadCases),
                         [](const auto& info) { return std::string(info.param.name); });

// As scikit-learn's converter writes it around a vectorizer of dictionaries.
TEST(Import, AnOperatorSetMayBeRepeated) {
  onnx::ModelProto model = ModelOf(17, "agraph (float[2] x) => (float[2] y) { y = Relu (x) }");
  *model.add_opset_import() = model.opset_import(0);
  const auto imported = ImportModel(*ModelFile::Parse(model.SerializeAsString(), "m"));
  EXPECT_TRUE(imported.ok()) << imported.status();
}

TEST(Import, MapsAreSequencesOfValuesAndKeys) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[2] x, float[2] z) => (float[2] y) "
                                   "{ y = ai.onnx.ml.ZipMap <classlabels_int64s = [1, 2]> (z) }");
  auto& opset = *model.add_opset_import();
  opset.set_domain("ai.onnx.ml");
  opset.set_version(1);
  const auto make_map = [](onnx::TypeProto& type, DType key, DType value) {
    auto& map = *type.mutable_map_type();
    map.set_key_type(static_cast<int>(key));
    map.mutable_value_type()->mutable_tensor_type()->set_elem_type(static_cast<int>(value));
  };
  auto& graph = *model.mutable_graph();
  make_map(*graph.mutable_input(0)->mutable_type(), DType::kString, DType::kFloat64);
  auto& sequence = *graph.mutable_output(0)->mutable_type()->mutable_sequence_type();
  make_map(*sequence.mutable_elem_type(), DType::kInt64, DType::kFloat32);
  const auto imported = ImportModel(*ModelFile::Parse(model.SerializeAsString(), "m"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  const ValueDef& x = imported->graph.value(imported->graph.inputs()[0]);
  EXPECT_EQ(x.type.kind, ValueKind::kSequence);
  EXPECT_EQ(x.type.dtype, DType::kFloat64);
  ASSERT_EQ(imported->maps.size(), 2u);
  EXPECT_EQ(imported->maps.at("x").ToString(), "map(string, float64)");
  EXPECT_EQ(imported->maps.at("y").ToString(), "sequence(map(int64, float32))");
}

TEST(Import, RefusesDeepSubgraphs) {
  onnx::ModelProto model = ModelOf(17, "agraph (bool c) => (float[2] y) { y = If (c) }");
  onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
  for (int depth = 0; depth < 31; ++depth) {
    onnx::AttributeProto& attribute = *node->add_attribute();
    attribute.set_name("then_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    node = attribute.mutable_g()->add_node();
    node->set_op_type("If");
  }
  EXPECT_THAT(ImportError(model), HasSubstr("subgraphs are nested more than 30 deep in it"));
  for (int depth = 0; depth < 400; ++depth) {
    node = node->add_attribute()->mutable_g()->add_node();
  }
  EXPECT_THAT(ImportError(model), HasSubstr("messages are nested deeper than"));
}

TEST(Load, NamesMissingFiles) {
  FakeFileSystem files;
  const auto model = ImportModelFile(files, "/none.onnx");
  EXPECT_TRUE(absl::IsNotFound(model.status()));
  EXPECT_THAT(model.status().message(), HasSubstr("/none.onnx"));
}

TEST(Load, RefusesEmptyGarbageAndTruncatedFiles) {
  const std::string good = ModelOf(17, kGood).SerializeAsString();
  EXPECT_THAT(ModelFile::Parse("", "m").status().message(), HasSubstr("the file is empty"));
  EXPECT_THAT(ModelFile::Parse("This is no model at all.", "m").status().message(),
              HasSubstr("not a whole ONNX file: at byte "));
  EXPECT_THAT(ModelFile::Parse(good.substr(0, good.size() - 3), "m").status().message(),
              HasSubstr("claims"));
}

TEST(Load, RefusesFilesOfEmptyMessages) {
  std::string nodes;
  for (int i = 0; i < 2'000'000; ++i) nodes.append("\x0a\x00", 2);
  std::string model("\x08\x08", 2);
  model += '\x3a';
  for (size_t size = nodes.size();; size >>= 7) {
    model += static_cast<char>(size >= 128 ? (size & 127) | 128 : size);
    if (size < 128) break;
  }
  const auto file = ModelFile::Parse(model + nodes, "bomb", WireLimits());
  EXPECT_TRUE(absl::IsResourceExhausted(file.status())) << file.status();
  EXPECT_THAT(file.status().message(), HasSubstr("mostly empty messages"));
}

TEST(Load, ReadsExternalDataBesideTheModelOnly) {
  FakeFileSystem files;
  onnx::ModelProto model = ModelOf(17, kGood);
  W(model).clear_float_data();
  W(model).set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& location = *W(model).add_external_data();
  location.set_key("location");
  ASSERT_TRUE(files.CreateDirectories("/models").ok());
  ASSERT_TRUE(
      files.WriteFileAtomically("/models/w.bin", std::string("\0\0\x80\x3f\0\0\0\x40", 8)).ok());
  ASSERT_TRUE(files.WriteFileAtomically("/secret", "12345678").ok());
  const auto import = [&](const std::string& path) {
    location.set_value(path);
    EXPECT_TRUE(files.WriteFileAtomically("/models/m.onnx", model.SerializeAsString()).ok());
    return ImportModelFile(files, "/models/m.onnx");
  };
  const auto good = import("w.bin");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->graph.FindVariable("w")->initial.data<float>(), ElementsAre(1, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(import("../secret").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(import("/secret").status()));
  EXPECT_THAT(import("missing.bin").status().message(),
              HasSubstr("initializer 'w': external data in 'missing.bin'"));
  onnx::StringStringEntryProto& offset = *W(model).add_external_data();
  offset.set_key("offset");
  offset.set_value("4");
  EXPECT_THAT(import("w.bin").status().message(),
              HasSubstr("8 bytes at offset 4, but the file has 8 bytes"));
  offset.set_value("-4");
  EXPECT_THAT(import("w.bin").status().message(), HasSubstr("has offset '-4'"));
  offset.set_key("length");
  offset.set_value("7");
  EXPECT_THAT(import("w.bin").status().message(), HasSubstr("has length 7, expected 8 bytes"));
}

TEST(ModelFileTest, WhatIsMadeOfAFileKeepsItsLimits) {
  const onnx::ModelProto model = ModelOf(17, "agraph (float[2] x) => (float[2] y) { y = Relu(x) }");
  const std::string bytes = model.SerializeAsString();
  const auto file = ModelFile::Parse(bytes, "m.onnx", {.max_bytes = bytes.size()});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(ModelFile::Edited(*file, bytes).ok());
  onnx::ModelProto longer = model;
  longer.set_doc_string("longer");
  EXPECT_EQ(ModelFile::Edited(*file, longer.SerializeAsString()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weft::testing
