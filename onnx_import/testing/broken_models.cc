#include "onnx_import/testing/broken_models.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

constexpr char kRelu[] = "agraph (float[N,4] x) => (float[N,4] y) { y = Relu(x) }";
constexpr int kManyLevels = 10000;

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Field(int number, const std::string& bytes) {
  return absl::StrCat(Varint(static_cast<uint64_t>(number) << 3 | 2), Varint(bytes.size()), bytes);
}

// ir_version 8, then what follows.
std::string AfterVersion(const std::string& rest) { return absl::StrCat("\x08\x08", rest); }

// If nodes in one another. Made inside out: protobuf's own classes would recurse.
std::string NestedBranches(int levels) {
  std::string graph = Field(1, Field(1, "x") + Field(2, "y") + Field(4, "Relu"));
  for (int level = 0; level < levels; ++level) {
    const std::string attribute = Field(1, "then_branch") + Field(6, graph) + "\xa0\x01\x05";
    graph = Field(1, Field(1, "c") + Field(2, "y") + Field(4, "If") + Field(5, attribute));
  }
  return AfterVersion(Field(7, graph) + Field(8, "\x10\x11"));
}

void Add(std::vector<BrokenModel>& models, std::string name, std::string bytes,
         std::vector<std::string> parts) {
  models.push_back({std::move(name), std::move(bytes), FoundBy::kImport, std::move(parts), {}});
}

void Add(std::vector<BrokenModel>& models, std::string name, const onnx::ModelProto& model,
         std::vector<std::string> parts) {
  Add(models, std::move(name), model.SerializeAsString(), std::move(parts));
}

// Functions of the domain "local", each `body` with its own number and the next one's for $0, $1.
onnx::ModelProto ModelWithFunctions(int count, const std::string& body, const std::string& last) {
  onnx::ModelProto model =
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) { y = local.f0(x) }");
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("local");
  opset.set_version(1);
  for (int i = 0; i <= count; ++i) {
    onnx::FunctionProto& function = *model.add_functions();
    function.set_domain("local");
    function.set_name(absl::StrCat("f", i));
    function.add_input(std::string("a"));
    function.add_output(std::string("b"));
    *function.add_opset_import() = opset;
    function.add_opset_import()->set_version(17);
    std::string input = "a";
    for (const char kind : i < count ? body : last) {  // 'c' calls the next, 'r' is a Relu
      onnx::NodeProto& node = *function.add_node();
      if (kind == 'c') node.set_domain("local");
      node.set_op_type(kind == 'c' ? absl::StrCat("f", i + 1) : "Relu");
      node.add_input(input);
      input = absl::StrCat("t", function.node_size());
      node.add_output(input);
    }
    if (function.node_size() > 0) {
      function.mutable_node(function.node_size() - 1)->set_output(0, std::string("b"));
    }
  }
  return model;
}

// Puts the function's nodes into `levels` branches of If nodes in one another.
void WrapInBranches(int levels, onnx::FunctionProto& function) {
  for (int level = 0; level < levels; ++level) {
    onnx::NodeProto branch;
    branch.set_op_type("If");
    branch.add_input(std::string("a"));
    branch.add_output(std::string("b"));
    onnx::AttributeProto& attribute = *branch.add_attribute();
    attribute.set_name("then_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->mutable_node()->Swap(function.mutable_node());
    attribute.mutable_g()->add_output()->set_name("b");
    *function.add_node() = branch;
  }
}

}  // namespace

onnx::ModelProto NamedModel(const std::string& body, int opset) {
  onnx::ModelProto model = ModelOf(opset, body);
  int index = 0;
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    node.set_name(absl::StrCat("node", index++));
  }
  return model;
}

void AddBrokenEncodings(std::vector<BrokenModel>& models) {
  const std::string whole = NamedModel(kRelu).SerializeAsString();
  Add(models, "Empty", std::string(), {"the file is empty"});
  Add(models, "Truncated", whole.substr(0, whole.size() / 2), {"not a whole ONNX file: at byte"});
  Add(models, "Picture", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\0", 20),
      {"not a whole ONNX file", "of another kind"});
  Add(models, "NumberWithoutEnd", absl::StrCat("\x08", std::string(11, '\xff'), "\x01"),
      {"in a ModelProto: a number is longer than 10 bytes"});
  Add(models, "LengthBeyondTheEnd",
      AfterVersion("\x3a\xff\xff\xff\xff\x0f"
                   "abc"),
      {"field 7 claims 4294967295 bytes where 3 are left"});
  Add(models, "LengthThatOverflows",
      AfterVersion("\x3a" + std::string(9, '\xff') +
                   "\x01"
                   "abc"),
      {"field 7 claims 18446744073709551615 bytes where 3 are left"});
  Add(models, "NumberForAMessage", AfterVersion("\x38\x05"),
      {"field ModelProto.graph has wire type 0, expected 2"});
  Add(models, "GroupsOfOldProtobuf", AfterVersion("\x3b\x3c"),
      {"wire type 3 of field 7 does not exist in ONNX"});
  std::string empty_nodes;
  for (int i = 0; i < 2'000'000; ++i) empty_nodes.append("\x0a\0", 2);
  Add(models, "TwoMillionEmptyNodes", AfterVersion(Field(7, empty_nodes) + Field(8, "\x10\x11")),
      {"more than 100000 nodes", "--max-nodes"});
  Add(models, "TenThousandLevels", NestedBranches(kManyLevels),
      {"messages are nested deeper than", "30 subgraphs"});
  Add(models, "ThirtyOneLevels", NestedBranches(31),
      {"node 0 (If, unnamed, output 'y')", "subgraphs are nested more than 30 deep"});
}

void AddBrokenGraphs(std::vector<BrokenModel>& models) {
  onnx::ModelProto model = NamedModel(kRelu);
  model.clear_graph();
  Add(models, "NoGraph", model, {"it has no graph"});
  model = NamedModel(kRelu);
  model.clear_opset_import();
  Add(models, "NoOperatorSet", model, {"it imports no operator set"});
  const char* const kSlopedRelu =
      "agraph (float[N,4] x) => (float[N,4] y) { y = Relu<slope = 2>(x) }";
  Add(models, "OperatorOfTheFuture", NamedModel(kSlopedRelu, 99),
      {"node 'node0' (Relu)", "attribute 'slope'", "operator set 99, and 1 to 28 are known"});
  model = NamedModel(kRelu);
  onnx::OperatorSetIdProto& again = *model.add_opset_import();
  again.set_domain("ai.onnx");
  again.set_version(15);
  Add(models, "OperatorSetTwice", model, {"operator set 'ai.onnx' is imported twice"});
  model = NamedModel(kRelu);
  model.set_ir_version(99);
  Add(models, "FormatOfTheFuture", model, {"ir_version is 99, expected 3 to 14"});
  Add(models, "Cycle",
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) "
                 "{ a = Add(x, b)  b = Relu(a)  y = Relu(b) }"),
      {"node 'node0' (Add) needs its own output: a cycle of 2 nodes", "node 'node1' (Relu)"});
  Add(models, "NodeThatNeedsItself",
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) { y = Add(x, y) }"),
      {"node 'node0' (Add) needs its own output"});
  Add(models, "DanglingInput",
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) { y = Add(x, nowhere) }"),
      {"node 'node0' (Add): its input 'nowhere' is no graph input"});
  Add(models, "DanglingOutput",
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) { z = Relu(x) }"),
      {"graph output 'y' is defined by no node"});
  Add(models, "ValueTwice",
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) { y = Relu(x)  y = Tanh(x) }"),
      {"node 'node1' (Tanh): its output 'y' is already defined"});
  model =
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) <float[1] w = {1}> { y = Add(x, w) }");
  *model.mutable_graph()->add_initializer() = model.graph().initializer(0);
  Add(models, "InitializerTwice", model, {"initializer 'w' occurs twice"});
  model.mutable_graph()->mutable_initializer()->RemoveLast();
  model.mutable_graph()->mutable_node(0)->set_output(0, std::string("w"));
  Add(models, "NodeThatDefinesAnInitializer", model,
      {"node 'node0' (Add): its output 'w' is already defined"});
  Add(models, "InputTwice",
      NamedModel("agraph (float[N,4] x, float[N,4] x) => (float[N,4] y) { y = Relu(x) }"),
      {"graph input 'x' occurs twice"});
  model = NamedModel(kRelu);
  model.mutable_graph()->mutable_node(0)->set_name("\x1b[31m\x07\xff");
  model.mutable_graph()->mutable_node(0)->set_input(0, std::string("q\n\xc2\x9b\xfe"));
  Add(models, "NamesThatSteerTheTerminal", model,
      {"node '\\x1b[31m\\x07\\xff' (Relu)", "its input 'q\\n\\xc2\\x9b\\xfe' is no graph input"});
  model = NamedModel(kRelu);
  model.mutable_graph()->mutable_node(0)->set_op_type(std::string(1'000'000, 'R'));
  Add(models, "NameOfAMegabyte", model, {"its op_type 'RRR", "has 1000000 bytes"});
}

void AddBrokenFunctions(std::vector<BrokenModel>& models) {
  Add(models, "TenThousandCallsInOneAnother", ModelWithFunctions(kManyLevels, "c", "r"),
      {"function 'f30' is in a chain of more than 30 calls"});
  Add(models, "FunctionsThatDouble", ModelWithFunctions(28, "cc", "r"),
      {"more than 32768 nodes once its functions are inlined"});
  onnx::ModelProto model = ModelWithFunctions(1, "c", "r");
  onnx::NodeProto& call = *model.mutable_functions(1)->mutable_node(0);
  call.set_domain("local");
  call.set_op_type("f0");
  Add(models, "FunctionThatCallsItself", model, {"function 'f0' calls itself ('f0' calls 'f1')"});
  model = ModelWithFunctions(0, "", "r");
  model.mutable_functions(0)->mutable_node(0)->set_output(0, std::string("elsewhere"));
  Add(models, "FunctionWithoutItsOutput", model,
      {"node 'node0' (f0)", "output 'b' of function 'f0' is defined by none of its nodes"});
  model = ModelWithFunctions(0, "", "r");
  model.mutable_graph()->mutable_node(0)->add_input(std::string("x"));
  Add(models, "FunctionWithTooManyInputs", model,
      {"node 'node0' (f0): it calls function 'f0' with 2 inputs"});
  model = ModelWithFunctions(4, "c", "r");
  for (int i = 0; i < 4; ++i) WrapInBranches(8, *model.mutable_functions(i));
  Add(models, "CallsInBranchesInCalls", model,
      {"subgraphs are nested more than 30 deep once the model's functions are inlined"});
  model = ModelWithFunctions(0, "", "r");
  *model.add_functions() = model.functions(0);
  Add(models, "FunctionTwice", model, {"function 'f0' is defined twice"});
}

std::vector<BrokenModel> BrokenModels() {
  std::vector<BrokenModel> models;
  AddBrokenEncodings(models);
  AddBrokenGraphs(models);
  AddBrokenFunctions(models);
  AddBrokenNodes(models);
  AddBrokenSizes(models);
  AddBrokenPayloads(models);
  AddBrokenExternalData(models);
  return models;
}

}  // namespace weft::testing
