#include "onnx_import/graph_wire.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/policy/operator_policy.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// A random graph of unknown operators: every feature that the wire format has to keep.
class GraphMaker {
 public:
  explicit GraphMaker(uint32_t seed) : random_(seed) {}

  Graph Make(int depth = 0) {
    Graph graph;
    graph.name = Chance(2) ? "main" : "";
    graph.opsets = {{"", 17}, {"test", 2}};
    std::vector<ValueId> values = {graph.AddInput("x", RandomType())};
    const int steps = 3 + Below(12);
    for (int step = 0; step < steps; ++step) AddSomething(graph, step, depth, values);
    for (const ValueId value : values) {
      if (Chance(4)) graph.AddOutput(value);
    }
    for (const Variable& variable : graph.variables()) {
      if (Chance(2)) graph.SetVariableUpdate(variable.name, values[Below(values.size())]);
    }
    Edit(graph);
    return graph;
  }

 private:
  int Below(size_t n) { return static_cast<int>(random_() % n); }
  bool Chance(int one_in) { return Below(one_in) == 0; }

  ValueType RandomType() {
    ValueType type{static_cast<ValueKind>(Below(3)), static_cast<DType>(Below(kDTypeCount)), {}};
    if (Chance(3)) return type;
    std::vector<Dim> dims;
    for (int axis = Below(4); axis > 0; --axis) {
      dims.push_back(Chance(3) ? Dim::Symbol("batch") : Chance(3) ? Dim() : Dim(Below(5)));
    }
    type.shape = SymbolicShape(std::move(dims));
    return type;
  }

  Tensor RandomTensor() {
    if (Chance(6)) return Tensor::OfStrings(Shape{2}, {"a", std::string("\0b", 2)});
    if (Chance(3)) return Tensor::Scalar<int64_t>(Below(100) - 50);
    std::vector<float> values(Below(600));
    for (float& value : values) value = static_cast<float>(Below(1000)) / 8;
    return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
  }

  Origin RandomOrigin() {
    return {Chance(2) ? "conv" : "", Chance(2) ? "conv_out" : "", Chance(2)};
  }

  // Of a shard, where the rank is known.
  std::optional<ShardSlice> RandomPlacement(const ValueType& type) {
    if (!type.shape.has_rank() || Chance(2)) return std::nullopt;
    ShardSlice placement;
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      placement.global_shape.AddDim(Below(9));
      placement.offset.push_back(Below(5));
    }
    return placement;
  }

  Attributes RandomAttributes(int depth) {
    Attributes attributes;
    if (Chance(3)) attributes.Set("i", int64_t{-3});
    if (Chance(3)) attributes.Set("f", 0.25f);
    if (Chance(3)) attributes.Set("s", std::string("text"));
    if (Chance(3)) attributes.Set("t", RandomTensor());
    if (Chance(3)) attributes.Set("is", std::vector<int64_t>(Below(3), 7));
    if (Chance(3)) attributes.Set("fs", std::vector<float>(Below(3), 1.5f));
    if (Chance(3)) attributes.Set("ss", std::vector<std::string>(Below(3), "x"));
    if (Chance(3)) attributes.Set("ts", std::vector<Tensor>(Below(3), RandomTensor()));
    if (depth == 0 && Chance(5)) attributes.Set("g", std::make_shared<Graph>(Make(depth + 1)));
    return attributes;
  }

  void AddSomething(Graph& graph, int step, int depth, std::vector<ValueId>& values) {
    const std::string name = absl::StrCat("n/", step);
    const int kind = Below(8);
    ValueId value;
    if (kind == 0) {
      value = graph.AddInput(name, RandomType(), Chance(2) ? InputRole::kStep : InputRole::kData);
    } else if (kind == 1) {
      value = graph.AddConstant(name, RandomTensor());
    } else if (kind == 2) {
      const Tensor initial = RandomTensor();
      value = graph.AddVariable(name, {ValueKind::kTensor, initial.dtype(), initial.shape()},
                                initial, Chance(2));
      if (Chance(2)) graph.mutable_variables().back().slot_of = "w";
      if (Chance(2)) graph.mutable_variables().back().name = absl::StrCat("var ", step);
    } else {
      value = AddNode(graph, name, depth, values);
    }
    graph.value(value).origin = RandomOrigin();
    graph.value(value).placement = RandomPlacement(graph.value(value).type);
    values.push_back(value);
  }

  ValueId AddNode(Graph& graph, const std::string& name, int depth, std::vector<ValueId>& values) {
    Graph::NodeSpec spec;
    spec.name = Chance(2) ? name : "";
    spec.domain = Chance(2) ? "test" : "ai.weft";
    spec.op = "Unheard";
    spec.attributes = RandomAttributes(depth);
    for (int i = Below(4); i > 0; --i) {
      spec.inputs.push_back(Chance(5) ? kNoValue : values[Below(values.size())]);
    }
    spec.keep_empty_outputs = true;
    spec.outputs = {name};
    if (Chance(3)) spec.outputs = {"", name, absl::StrCat(name, "_b")};
    spec.phase = static_cast<Phase>(Below(4));
    if (Chance(2)) spec.stage = StageId(Below(3));
    spec.origin = RandomOrigin();
    const Node& node = graph.node(graph.AddNode(std::move(spec)));
    ValueId made;
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      made = output;
      graph.value(output).type = RandomType();
      graph.value(output).origin = RandomOrigin();
    }
    return made;
  }

  // Leaves holes in both id spaces.
  void Edit(Graph& graph) {
    std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
    for (const NodeId id : graph.node_ids()) {
      bool used = false;
      for (const ValueId output : graph.node(id).outputs) {
        if (!output.valid()) continue;
        used |= !uses[output.value].empty();
        for (const ValueId other : graph.outputs()) used |= other == output;
        for (const Variable& variable : graph.variables()) used |= variable.update == output;
      }
      if (!used && Chance(2)) graph.RemoveNode(id);
    }
  }

  std::mt19937 random_;
};

// Values by their place among the live ones.
std::vector<int> Ranks(const Graph& graph) {
  std::vector<int> ranks(graph.value_capacity(), -1);
  int rank = 0;
  for (const ValueId id : graph.value_ids()) ranks[id.value] = rank++;
  return ranks;
}

void ExpectSame(const Graph& a, const Graph& b);

void ExpectSameAttributes(const Attributes& a, const Attributes& b) {
  ASSERT_EQ(a.items().size(), b.items().size());
  for (const auto& [name, attribute] : a.items()) {
    const Attribute* other = b.Find(name);
    ASSERT_NE(other, nullptr) << name;
    if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
      ExpectSame(**graph, *std::get<std::shared_ptr<Graph>>(*other));
    } else {
      EXPECT_TRUE(Attributes({{name, attribute}}).Equals(Attributes({{name, *other}}))) << name;
    }
  }
}

void ExpectSameNodes(const Graph& a, const Graph& b) {
  const std::vector<int> ranks_a = Ranks(a);
  const std::vector<int> ranks_b = Ranks(b);
  const auto translate = [](const std::vector<int>& ranks, const std::vector<ValueId>& ids) {
    std::vector<int> result;
    for (const ValueId id : ids) result.push_back(id.valid() ? ranks[id.value] : -1);
    return result;
  };
  ASSERT_EQ(a.num_nodes(), b.num_nodes());
  for (int i = 0; i < a.num_nodes(); ++i) {
    const Node& x = a.node(a.node_ids()[i]);
    const Node& y = b.node(b.node_ids()[i]);
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.domain, y.domain);
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.phase, y.phase);
    EXPECT_EQ(x.stage, y.stage);
    EXPECT_EQ(x.origin, y.origin);
    EXPECT_EQ(translate(ranks_a, x.inputs), translate(ranks_b, y.inputs)) << x.name;
    EXPECT_EQ(translate(ranks_a, x.outputs), translate(ranks_b, y.outputs)) << x.name;
    ExpectSameAttributes(x.attributes, y.attributes);
  }
  EXPECT_EQ(translate(ranks_a, a.inputs()), translate(ranks_b, b.inputs()));
  EXPECT_EQ(translate(ranks_a, a.outputs()), translate(ranks_b, b.outputs()));
}

void ExpectSameValues(const Graph& a, const Graph& b) {
  const std::vector<ValueId> ids_a = a.value_ids();
  const std::vector<ValueId> ids_b = b.value_ids();
  ASSERT_EQ(ids_a.size(), ids_b.size());
  for (size_t i = 0; i < ids_a.size(); ++i) {
    const ValueDef& x = a.value(ids_a[i]);
    const ValueDef& y = b.value(ids_b[i]);
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.source, y.source) << x.name;
    EXPECT_EQ(x.type.ToString(), y.type.ToString()) << x.name;
    EXPECT_EQ(x.origin, y.origin) << x.name;
    EXPECT_TRUE(x.placement == y.placement) << x.name;
    EXPECT_EQ(x.output_index, y.output_index) << x.name;
    if (x.source == ValueSource::kConstant) {
      EXPECT_TRUE(BitwiseEqual(x.constant, y.constant)) << x.name;
    }
    if (x.source == ValueSource::kInput) {
      EXPECT_EQ(a.input_role(x.id), b.input_role(y.id)) << x.name;
    }
  }
}

void ExpectSame(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.opsets, b.opsets);
  ExpectSameNodes(a, b);
  ExpectSameValues(a, b);
  ASSERT_EQ(a.variables().size(), b.variables().size());
  for (size_t i = 0; i < a.variables().size(); ++i) {
    const Variable& x = a.variables()[i];
    const Variable& y = b.variables()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.trainable, y.trainable) << x.name;
    EXPECT_EQ(x.slot_of, y.slot_of) << x.name;
    EXPECT_EQ(x.update.valid(), y.update.valid()) << x.name;
    if (x.update.valid() && y.update.valid()) {
      EXPECT_EQ(a.value(x.update).name, b.value(y.update).name);
    }
    EXPECT_TRUE(BitwiseEqual(x.initial, y.initial)) << x.name;
  }
}

TEST(GraphWire, RandomGraphsComeBackTheSame) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Graph graph = GraphMaker(seed).Make();
    const auto bytes = GraphToOnnx(graph);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto back = GraphFromOnnx(*bytes);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << graph.DebugString();
    ExpectSame(graph, *back);
    EXPECT_EQ(*GraphToOnnx(*back), *bytes);
    if (HasFailure()) break;
  }
}

Graph TwoNodes() {
  Graph graph;
  graph.name = "two";
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape{2})});
  const ValueId w =
      graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape{2})},
                        Tensor::Of<float>(Shape{2}, {1, 2}), true);
  for (const ValueId input : {x, w}) {
    Graph::NodeSpec spec;
    spec.domain = "test";
    spec.op = "Twist";
    spec.inputs = {input};
    spec.outputs = {"y"};
    graph.AddOutput(graph.node(graph.AddNode(std::move(spec))).outputs[0]);
  }
  return graph;
}

TEST(GraphWire, LeavesWeightsOutWhenAsked) {
  const auto bytes = GraphToOnnx(TwoNodes(), {.weights = false});
  ASSERT_TRUE(bytes.ok());
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*bytes));
  EXPECT_EQ(model.graph().initializer_size(), 0);
  const auto back = GraphFromOnnx(*bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_NE(back->FindVariable("w"), nullptr);
  EXPECT_TRUE(back->FindVariable("w")->trainable);
  EXPECT_FALSE(back->FindVariable("w")->initial.valid());
}

TEST(GraphWire, WritesPlainModelsForOthers) {
  const auto bytes = GraphToOnnx(TwoNodes(), {.annotations = false, .opset = 17});
  ASSERT_TRUE(bytes.ok());
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*bytes));
  EXPECT_EQ(model.ir_version(), 8);
  EXPECT_EQ(model.opset_import(0).version(), 17);
  EXPECT_EQ(model.graph().input_size(), 1);
  EXPECT_EQ(model.graph().initializer(0).name(), "w");
  EXPECT_EQ(model.graph().node(0).metadata_props_size(), 0);
}

// Dims were read from a shape that had ended: of up to six from the stack, of more from freed
// memory.
TEST(GraphWire, WritesWhereWeightsLieBesideTheModel) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1000}, {3, 5}, {2, 3, 4, 5, 6, 7}, {2, 1, 3, 1, 2, 1, 5, 4}};
  Graph graph;
  graph.opsets = {{"", 28}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<Dim> dims(shapes[i].begin(), shapes[i].end());
    graph.AddVariable(absl::StrCat("w", i),
                      {ValueKind::kTensor, DType::kFloat32, SymbolicShape(dims)}, Tensor(),
                      /*trainable=*/true);
  }
  const auto bytes = GraphToOnnx(graph, {.annotations = false, .weights_beside = "model.data"});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*bytes));
  ASSERT_EQ(model.graph().initializer_size(), static_cast<int>(shapes.size()));
  int64_t end = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const onnx::TensorProto& proto = model.graph().initializer(static_cast<int>(i));
    EXPECT_EQ(proto.name(), absl::StrCat("w", i));
    EXPECT_THAT(proto.dims(), ::testing::ElementsAreArray(shapes[i]));
    int64_t size = 4;
    for (const int64_t dim : shapes[i]) size *= dim;
    std::map<std::string, std::string> entries;
    for (const auto& entry : proto.external_data()) entries[entry.key()] = entry.value();
    EXPECT_EQ(entries["location"], "model.data");
    EXPECT_EQ(entries["offset"], absl::StrCat(end));
    EXPECT_EQ(entries["length"], absl::StrCat(size));
    end = (end + size + 4095) / 4096 * 4096;
  }
}

int64_t IrVersionWritten(const Graph& graph, const GraphToOnnxOptions& options) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(*GraphToOnnx(graph, options)));
  return model.ir_version();
}

// A model of operator set 18 said IR version 14, which no program of its time reads.
TEST(GraphWire, WritesTheIrVersionOfTheOperatorSet) {
  const Graph graph = TwoNodes();
  for (const auto& [opset, ir_version] :
       {std::pair(13, 8), std::pair(17, 8), std::pair(18, 8), std::pair(19, 9), std::pair(20, 9),
        std::pair(21, 10), std::pair(22, 10), std::pair(23, 11), std::pair(24, 12),
        std::pair(25, 13), std::pair(27, 13), std::pair(28, 14)}) {
    EXPECT_EQ(IrVersionWritten(graph, {.annotations = false, .opset = opset}), ir_version)
        << "operator set " << opset;
  }
}

TEST(GraphWire, WritesAnIrVersionThatHasPropertiesOfNodes) {
  EXPECT_EQ(IrVersionWritten(TwoNodes(), {.opset = 17}), 10);
}

TEST(GraphWire, WritesTheIrVersionOfTheLatestDomain) {
  Graph graph;
  graph.opsets = {{"ai.onnx.ml", 4}};
  Graph::NodeSpec spec;
  spec.domain = "ai.onnx.ml";
  spec.op = "Twist";
  spec.inputs = {graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, {}})};
  spec.outputs = {"y"};
  graph.AddOutput(graph.node(graph.AddNode(std::move(spec))).outputs[0]);
  EXPECT_EQ(IrVersionWritten(graph, {.annotations = false, .opset = 17}), 9);
}

// A file of TwoNodes after `edit`; the error that reading it gives.
template <typename Edit>
std::string ErrorAfter(Edit edit) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(*GraphToOnnx(TwoNodes())));
  edit(*model.mutable_graph());
  const auto graph = GraphFromOnnx(model.SerializeAsString());
  EXPECT_FALSE(graph.ok());
  return std::string(graph.status().message());
}

TEST(GraphWire, RefusesDanglingInputs) {
  EXPECT_THAT(ErrorAfter([](onnx::GraphProto& graph) { graph.mutable_node(0)->set_input(0, "q"); }),
              HasSubstr("node 'Twist' (Twist): value 'q' is used but not defined"));
}

// What a peer sends is asked for as a model's file is.
TEST(GraphWire, RefusesOperatorsThatThePolicyDoesNotAllow) {
  const std::string bytes = *GraphToOnnx(TwoNodes());
  SetOperatorPolicy(OperatorPolicy::Create({}, {"*::Twist"}).value());
  const auto denied = GraphFromOnnx(bytes);
  SetOperatorPolicy(OperatorPolicy::Create({"*::*"}, {}).value());
  const auto allowed = GraphFromOnnx(bytes);
  SetOperatorPolicy({});
  EXPECT_EQ(denied.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.status().message()),
              HasSubstr("Twist' is denied by --deny-ops '*::Twist'"));
  EXPECT_TRUE(allowed.ok()) << allowed.status();
}

TEST(GraphWire, RefusesCycles) {
  EXPECT_THAT(ErrorAfter([](onnx::GraphProto& graph) { graph.mutable_node(0)->set_input(0, "y"); }),
              HasSubstr("cycle"));
}

TEST(GraphWire, RefusesMetadataThatIsNoNumber) {
  EXPECT_THAT(ErrorAfter([](onnx::GraphProto& graph) {
                graph.mutable_node(0)->mutable_metadata_props(0)->set_value("-7");
              }),
              HasSubstr("weft.id is '-7', expected a number from 0 on"));
}

TEST(GraphWire, RefusesNodesOfOneName) {
  EXPECT_THAT(ErrorAfter([](onnx::GraphProto& graph) {
                graph.mutable_node(1)->set_name(graph.node(0).name());
              }),
              HasSubstr("another node has the same name"));
}

TEST(GraphWire, RefusesWeightsOfAnotherShape) {
  EXPECT_THAT(ErrorAfter([](onnx::GraphProto& graph) {
                graph.mutable_initializer(0)->set_dims(0, 1);
                graph.mutable_initializer(0)->mutable_raw_data()->resize(4);
              }),
              HasSubstr("variable 'w' is float32[2] but its value is float32[1]"));
}

}  // namespace
}  // namespace weft::testing
