// What `graph_runner run` takes and gives: archives of inputs, random values, chosen outputs,
// profiles.
#include <zlib.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx/onnx_pb.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "tools/models/random_inputs.h"
#include "tools/reports/run_profile.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// y = -relu(x) for x [N,4], with the value "middle" between the two.
std::string TwoNodes() {
  const std::string path = TestPath("model.onnx");
  WriteTestFile(path, WireModel(17,
                                {{"positive", "Relu", {"x"}, {"middle"}},
                                 {"negated", "Neg", {"middle"}, {"y"}}},
                                "x", "y"));
  return path;
}

Tensor ReadOutput(const std::string& folder, const std::string& name) {
  const auto tensor = ReadDataFile(RealFileSystem(), folder + "/" + name + ".npy");
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.value_or(Tensor());
}

// The output y of a run on random inputs.
Tensor RunOnRandom(const std::string& model, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"run", model, "--output-dir", TestPath("out")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const CommandResult result = RunCommand(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return ReadOutput(TestPath("out"), "y");
}

void AddMapType(::onnx::TypeProto& type, int key) {
  type.mutable_map_type()->set_key_type(key);
  auto& value = *type.mutable_map_type()->mutable_value_type()->mutable_tensor_type();
  value.set_elem_type(::onnx::TensorProto::FLOAT);
}

template <typename List>
void SetList(::onnx::NodeProto& node, const std::string& name,
             ::onnx::AttributeProto::AttributeType type, List* (::onnx::AttributeProto::*list)(),
             const auto& values) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  for (const auto& value : values) *(attribute.*list)()->Add() = value;
}

// As scikit-learn's converter writes a DictVectorizer and a LogisticRegression of three classes.
std::string ClassifierOfMaps() {
  using Attribute = ::onnx::AttributeProto;
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  auto& opset = *model.add_opset_import();
  opset.set_domain("ai.onnx.ml");
  opset.set_version(1);
  ::onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("classifier");
  const auto add = [&graph](const char* op, const char* input,
                            const std::vector<std::string>& outputs) -> ::onnx::NodeProto& {
    ::onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    node.set_name(op);
    node.set_domain("ai.onnx.ml");
    node.add_input(input);
    for (const std::string& output : outputs) node.add_output(output);
    return node;
  };
  const std::vector<int64_t> labels = {10, 20, 30};
  auto& vectorizer = add("DictVectorizer", "x", {"features"});
  SetList(vectorizer, "string_vocabulary", Attribute::STRINGS, &Attribute::mutable_strings,
          std::vector<std::string>{"height", "width"});
  auto& classifier = add("LinearClassifier", "features", {"label", "scores"});
  SetList(classifier, "coefficients", Attribute::FLOATS, &Attribute::mutable_floats,
          std::vector<float>{1, -1, 0.5, 0.25, -0.75, 1});
  SetList(classifier, "intercepts", Attribute::FLOATS, &Attribute::mutable_floats,
          std::vector<float>{0.1f, -0.2f, 0.3f});
  SetList(classifier, "classlabels_ints", Attribute::INTS, &Attribute::mutable_ints, labels);
  auto& softmax = *classifier.add_attribute();
  softmax.set_name("post_transform");
  softmax.set_type(Attribute::STRING);
  softmax.set_s("SOFTMAX");
  SetList(add("ZipMap", "scores", {"probability"}), "classlabels_int64s", Attribute::INTS,
          &Attribute::mutable_ints, labels);
  auto& input = *graph.add_input();
  input.set_name("x");
  AddMapType(*input.mutable_type(), ::onnx::TensorProto::STRING);
  auto& label = *graph.add_output();
  label.set_name("label");
  label.mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::INT64);
  auto& probability = *graph.add_output();
  probability.set_name("probability");
  AddMapType(*probability.mutable_type()->mutable_sequence_type()->mutable_elem_type(),
             ::onnx::TensorProto::INT64);
  const std::string path = TestPath("classifier.onnx");
  WriteTestFile(path, model.SerializeAsString());
  return path;
}

// The expected probabilities are onnxruntime 1.31's.
TEST(Maps, GoInAndOutAsJson) {
  const std::string model = ClassifierOfMaps();
  const std::string input = TestPath("x.json");
  WriteTestFile(input, R"({"width": 2, "height": 1.0, "depth": 9})");
  const CommandResult result =
      RunCommand({"run", model, "--input", "x=" + input, "--output-dir", TestPath("out")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("label: int64[1]{30}"));
  EXPECT_THAT(result.out, HasSubstr("probability: sequence(map(int64, float32))\n  {\"10\":0.055"));
  const auto written = nlohmann::json::parse(ReadTestFile(TestPath("out/probability.json")));
  ASSERT_EQ(written.size(), 1u);
  ASSERT_EQ(written[0].size(), 3u);
  EXPECT_NEAR(written[0]["10"].get<double>(), 0.055363960564136505, 1e-6);
  EXPECT_NEAR(written[0]["20"].get<double>(), 0.3030593693256378, 1e-6);
  EXPECT_NEAR(written[0]["30"].get<double>(), 0.6415766477584839, 1e-6);
  const CommandResult inspected = RunCommand({"inspect", model});
  EXPECT_THAT(inspected.out, HasSubstr("input x: map(string, float32)\n"));
  EXPECT_THAT(inspected.out, HasSubstr("output probability: sequence(map(int64, float32))\n"));
}

TEST(Maps, WhatIsNoneIsNamed) {
  const std::string model = ClassifierOfMaps();
  const std::string input = TestPath("x.json");
  const auto error_of = [&](const std::string& json) {
    WriteTestFile(input, json);
    const CommandResult result =
        RunCommand({"run", model, "--input", "x=" + input, "--output-dir", TestPath("out")});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kData)) << json;
    return result.err;
  };
  EXPECT_THAT(error_of("{"), HasSubstr("it is no JSON"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(R"({"width": "2"})"), HasSubstr("a value is \"2\", expected a number"));
  EXPECT_THAT(error_of(R"({"width": "2"})"),
              HasSubstr("for input 'x', which is map(string, float32), as JSON"));
  const CommandResult missing =
      RunCommand({"run", model, "--random", "--output-dir", TestPath("out")});
  EXPECT_EQ(missing.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(missing.err, HasSubstr("add --input x=FILE.json"));
}

TEST(RandomInputs, AreTheSameForASeed) {
  const std::string model = TwoNodes();
  const Tensor first = RunOnRandom(model, {"--random", "--seed", "7"});
  EXPECT_EQ(first.shape(), Shape({1, 4}));
  EXPECT_TRUE(BitwiseEqual(first, RunOnRandom(model, {"--random", "--seed", "7"})));
  EXPECT_FALSE(BitwiseEqual(first, RunOnRandom(model, {"--random", "--seed", "8"})));
}

TEST(RandomInputs, HaveTheSizesThatAreAskedFor) {
  EXPECT_EQ(RunOnRandom(TwoNodes(), {"--random", "--dim", "N=3"}).shape(), Shape({3, 4}));
  EXPECT_EQ(RunOnRandom(TwoNodes(), {"--dim=N=0", "--random"}).shape(), Shape({0, 4}));
}

void ExpectUsage(const std::vector<std::string>& flags, const std::string& part) {
  std::vector<std::string> arguments = {"run", TwoNodes(), "--output-dir", TestPath("out")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const CommandResult result = RunCommand(arguments);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.out;
  EXPECT_THAT(result.err, HasSubstr(part));
}

TEST(RandomInputs, SayWhatIsWrongWithASize) {
  ExpectUsage({"--random", "--dim", "M=3"},
              "--dim M=3: no input has a dimension called 'M'; there are: N");
  ExpectUsage({"--random", "--dim", "N=many"}, "--dim N=many: expected NAME=SIZE");
  ExpectUsage({"--random", "--dim", "N=-1"}, "--dim N=-1: expected NAME=SIZE");
  ExpectUsage({"--random", "--dim", "N=1,N=2"}, "gives 'N' twice");
  ExpectUsage({"--dim", "N=1"}, "add --random");
}

ValueDef InputOf(DType dtype, SymbolicShape shape) {
  ValueDef input;
  input.name = "x";
  input.type = {ValueKind::kTensor, dtype, std::move(shape)};
  return input;
}

// Least and largest of many random elements.
std::vector<double> RangeOf(DType dtype) {
  const auto value = RandomInput(InputOf(dtype, SymbolicShape({Dim(4000)})), {}, 1);
  EXPECT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->tensor().dtype(), dtype);
  const std::vector<double> elements = ToDoubles(value->tensor()).value();
  const auto [smallest, largest] = std::minmax_element(elements.begin(), elements.end());
  return {*smallest, *largest};
}

TEST(RandomInputs, AreInTheRangeOfTheirType) {
  EXPECT_THAT(RangeOf(DType::kInt64), ElementsAre(0, 9));
  EXPECT_THAT(RangeOf(DType::kUint16), ElementsAre(0, 9));
  EXPECT_THAT(RangeOf(DType::kInt8), ElementsAre(-128, 127));
  EXPECT_THAT(RangeOf(DType::kUint8), ElementsAre(0, 255));
  EXPECT_THAT(RangeOf(DType::kInt4), ElementsAre(-8, 7));
  EXPECT_THAT(RangeOf(DType::kUint2), ElementsAre(0, 3));
  EXPECT_THAT(RangeOf(DType::kBool), ElementsAre(0, 1));
}

TEST(RandomInputs, AreNormalForFloats) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    const auto value = RandomInput(InputOf(dtype, SymbolicShape({Dim(40000)})), {}, 1);
    ASSERT_TRUE(value.ok()) << value.status();
    const std::vector<double> elements = ToDoubles(value->tensor()).value();
    double sum = 0;
    double squares = 0;
    for (const double element : elements) {
      sum += element;
      squares += element * element;
    }
    EXPECT_NEAR(sum / 40000, 0, 0.02);  // four standard deviations of the mean
    EXPECT_NEAR(squares / 40000, 1, 0.03);
  }
}

TEST(RandomInputs, AreLettersForStrings) {
  const auto value = RandomInput(InputOf(DType::kString, SymbolicShape({Dim(3)})), {}, 1);
  ASSERT_TRUE(value.ok()) << value.status();
  for (const std::string& text : value->tensor().strings()) {
    EXPECT_EQ(text.size(), 4u);
    EXPECT_THAT(std::vector<char>(text.begin(), text.end()),
                Each(::testing::AllOf(::testing::Ge('a'), ::testing::Le('z'))));
  }
}

TEST(RandomInputs, AreRefusedForUnknownRanks) {
  const auto value = RandomInput(InputOf(DType::kFloat32, SymbolicShape()), {}, 1);
  ASSERT_FALSE(value.ok());
  EXPECT_THAT(std::string(value.status().message()), HasSubstr("--input x=FILE"));
}

// An .npz file of stored float32 arrays [1,4], as numpy.savez writes it but for the dates.
std::string NpzOf(const std::map<std::string, std::vector<float>>& arrays) {
  std::string bytes;
  std::string directory;
  const auto number = [](uint64_t value, int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
    return text;
  };
  for (const auto& [array, values] : arrays) {
    const std::string data =
        ToNpy(Tensor::Of<float>(Shape({1, static_cast<int64_t>(values.size())}), values)).value();
    const std::string name = array + ".npy";
    const auto* const raw = reinterpret_cast<const Bytef*>(data.data());
    const std::string sizes = number(crc32(0, raw, static_cast<uInt>(data.size())), 4) +
                              number(data.size(), 4) + number(data.size(), 4) +
                              number(name.size(), 2) + number(0, 2);
    directory += "PK\1\2" + number(0x14, 2) + number(0x14, 2) + number(0, 8) + sizes +
                 number(0, 10) + number(bytes.size(), 4) + name;
    bytes += "PK\3\4" + number(0x14, 2) + number(0, 8) + sizes + name + data;
  }
  const std::string end = "PK\5\6" + number(0, 4) + number(arrays.size(), 2) +
                          number(arrays.size(), 2) + number(directory.size(), 4) +
                          number(bytes.size(), 4) + number(0, 2);
  return bytes + directory + end;
}

// The output of a run with `input`, or the end of its error.
std::string OutputFor(const std::string& input, int exit_code = 0) {
  const CommandResult result =
      RunCommand({"run", TwoNodes(), "--input", input, "--output-dir", TestPath("out")});
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  if (result.exit_code != 0) return result.err;
  return ReadOutput(TestPath("out"), "y").ToString(8) + " " + result.err;
}

TEST(NpzInputs, AreFoundByTheNameOfTheInputOrOfTheArray) {
  const std::string path = TestPath("in.npz");
  WriteTestFile(path, NpzOf({{"x", {1, -2, 3, 4}}, {"other", {5, 6, -7, 8}}}));
  const std::string of_x = "float32[1,4]{-1, -0, -3, -4}";
  EXPECT_THAT(OutputFor("x=" + path), HasSubstr(of_x));
  EXPECT_THAT(OutputFor("x=" + path + ":other"), HasSubstr("float32[1,4]{-5, -6, -0, -8}"));
  EXPECT_THAT(OutputFor(path),
              ::testing::AllOf(HasSubstr(of_x), HasSubstr("no input is called other")));
  WriteTestFile(path, NpzOf({{"another", {1, -2, 3, 4}}}));
  EXPECT_THAT(OutputFor("x=" + path), HasSubstr(of_x));
}

TEST(NpzInputs, SayWhatIsWrongWithAFile) {
  const int data = static_cast<int>(ExitCode::kData);
  const std::string path = TestPath("in.npz");
  const std::string good = NpzOf({{"a", {1, -2, 3, 4}}, {"b", {5, 6, -7, 8}}});
  WriteTestFile(path, good);
  EXPECT_THAT(OutputFor("x=" + path, data), HasSubstr("holds 2 arrays; name one, as"));
  EXPECT_THAT(OutputFor("x=" + path + ":c", data),
              HasSubstr("has no member 'c.npy'; it has 2: a.npy, b.npy"));
  EXPECT_THAT(OutputFor(path, data), HasSubstr("input 'x' (float32[N,4]) has no value"));
  WriteTestFile(path, good.substr(0, good.size() - 30));
  EXPECT_THAT(OutputFor("x=" + path, data), HasSubstr("in.npz': truncated"));
  std::string flipped = good;
  flipped[good.find("NUMPY") + 130] ^= 1;
  WriteTestFile(path, flipped);
  EXPECT_THAT(OutputFor("x=" + path + ":a", data), HasSubstr("in.npz'"));
  WriteTestFile(path, NpzOf({{"x", {1, 2, 3}}}));
  EXPECT_THAT(OutputFor("x=" + path, data),
              HasSubstr("is float32[1,3], input 'x' is float32[N,4]"));
  WriteTestFile(path, "no archive");
  EXPECT_THAT(OutputFor("x=" + path, data), HasSubstr("does not start with PK"));
}

TEST(OutputNames, MayBeAnyValues) {
  const std::string model = TwoNodes();
  const CommandResult result = RunCommand({"run", model, "--random", "--output-name", "middle",
                                           "--output-name", "x", "--output-dir", TestPath("out")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("middle: "));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("y: ")));
  const std::vector<double> x = ToDoubles(ReadOutput(TestPath("out"), "x")).value();
  const std::vector<double> middle = ToDoubles(ReadOutput(TestPath("out"), "middle")).value();
  ASSERT_EQ(x.size(), 4u);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(middle[i], std::max(x[i], 0.0));
}

TEST(OutputNames, AreCheckedAgainstTheModel) {
  ExpectUsage({"--random", "--output-name", "yy"}, "has no such value; its outputs are: y");
  ExpectUsage({"--random", "--output-name", "y", "--output-name", "y"}, "names 'y' twice");
}

TEST(Profile, IsATableOfOperatorsAndNodes) {
  const CommandResult result = RunCommand({"run", TwoNodes(), "--random", "--profile", "--repeat",
                                           "5", "--threads", "1", "--output-dir", TestPath("out")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profile: 4 runs on 1 thread, "));
  EXPECT_THAT(result.out, HasSubstr("\n  operator "));
  EXPECT_THAT(result.out, HasSubstr("\n  Relu "));
  EXPECT_THAT(result.out, HasSubstr("\n  negated (Neg) "));
}

TEST(Profile, IsForProgramsToo) {
  const CommandResult result =
      RunCommand({"run", TwoNodes(), "--random", "--profile", "--repeat", "5", "--output", "json",
                  "--output-dir", TestPath("out")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["outputs"][0]["name"], "y");
  const auto& profile = document["profile"];
  EXPECT_EQ(profile["runs"], 4);
  EXPECT_GT(profile["milliseconds_per_run"].get<double>(), 0);
  double in_nodes = 0;
  ASSERT_EQ(profile["nodes"].size(), 2u);
  for (const auto& node : profile["nodes"]) {
    EXPECT_EQ(node["calls"], 4);
    in_nodes += node["milliseconds_per_run"].get<double>();
  }
  double in_operators = 0;
  for (const auto& row : profile["operators"]) {
    EXPECT_EQ(row["nodes"], 1);
    in_operators += row["milliseconds_per_run"].get<double>();
  }
  EXPECT_NEAR(in_nodes, in_operators, 1e-9);
  EXPECT_LE(in_nodes, profile["milliseconds_per_run"].get<double>());
}

TEST(Profile, AddsUpNodesOfAnOperatorAndSortsByTime) {
  RunProfile profile;
  profile.runs = 2;
  profile.threads = 3;
  profile.nanoseconds = 40'000'000;
  profile.nodes = {{"a", "Conv", Phase::kForward, 2, 4'000'000},
                   {"b", "Gemm", Phase::kForward, 2, 6'000'000},
                   {"c", "Conv", Phase::kForward, 2, 8'000'000}};
  EXPECT_EQ(ProfileText(profile),
            R"(profile: 2 runs on 3 threads, 20.000 ms a run, of which 9.000 in nodes
  operator                                           nodes    ms a run      %
  Conv                                                   2       6.000   30.0
  Gemm                                                   1       3.000   15.0
  node (operator)                                    calls    ms a run      %
  c (Conv)                                               2       4.000   20.0
  b (Gemm)                                               2       3.000   15.0
  a (Conv)                                               2       2.000   10.0
)");
}

TEST(Profile, LeavesTheFirstRunOut) {
  const std::vector<NodeStatistics> first = {{"a", "Conv", Phase::kForward, 1, 100},
                                             {"once", "Neg", Phase::kForward, 1, 5}};
  const std::vector<NodeStatistics> all = {{"a", "Conv", Phase::kForward, 3, 160},
                                           {"once", "Neg", Phase::kForward, 1, 5},
                                           {"b", "Gemm", Phase::kForward, 2, 8}};
  const std::vector<NodeStatistics> difference = Difference(all, first);
  ASSERT_EQ(difference.size(), 2u);
  EXPECT_EQ(difference[0].node, "a");
  EXPECT_EQ(difference[0].calls, 2);
  EXPECT_EQ(difference[0].nanoseconds, 60);
  EXPECT_EQ(difference[1].node, "b");
}

// -- What a run may take: memory and time. A model of three lines asked for 8 GB, and another one
// never ended and said nothing.

constexpr auto kInt64 = ::onnx::TensorProto::INT64;
constexpr auto kBool = ::onnx::TensorProto::BOOL;

void AddValue(::onnx::ValueInfoProto& value, const std::string& name, int type) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape();
}

::onnx::NodeProto& AddNode(::onnx::GraphProto& graph, const std::string& op,
                           const std::vector<std::string>& inputs, const std::string& output) {
  ::onnx::NodeProto& node = *graph.add_node();
  node.set_name(op + "_of_" + output);
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void AddConstant(::onnx::GraphProto& graph, const std::string& name, int type, int64_t value) {
  ::onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  if (type == kInt64) tensor.add_int64_data(value);
  if (type == kBool) tensor.add_int32_data(static_cast<int>(value));
}

std::string WriteGraph(const ::onnx::GraphProto& graph) {
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  *model.mutable_graph() = graph;
  const std::string path = TestPath("model.onnx");
  WriteTestFile(path, model.SerializeAsString());
  return path;
}

// y = 0, 1, ..., n - 1
std::string Ramp() {
  ::onnx::GraphProto graph;
  graph.set_name("g");
  AddConstant(graph, "zero", kInt64, 0);
  AddConstant(graph, "one", kInt64, 1);
  AddNode(graph, "Range", {"zero", "n", "one"}, "y");
  AddValue(*graph.add_input(), "n", kInt64);
  AddValue(*graph.add_output(), "y", kInt64);
  graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
  return WriteGraph(graph);
}

// y = x + x, for ever.
std::string Endless() {
  ::onnx::GraphProto graph;
  graph.set_name("g");
  AddConstant(graph, "true", kBool, 1);
  ::onnx::NodeProto& loop = AddNode(graph, "Loop", {"", "true", "x"}, "y");
  ::onnx::AttributeProto& attribute = *loop.add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  ::onnx::GraphProto& body = *attribute.mutable_g();
  body.set_name("body");
  AddNode(body, "Identity", {"go"}, "go_on");
  AddNode(body, "Add", {"v", "v"}, "twice");
  AddValue(*body.add_input(), "round", kInt64);
  AddValue(*body.add_input(), "go", kBool);
  AddValue(*body.add_input(), "v", kInt64);
  AddValue(*body.add_output(), "go_on", kBool);
  AddValue(*body.add_output(), "twice", kInt64);
  AddValue(*graph.add_input(), "x", kInt64);
  AddValue(*graph.add_output(), "y", kInt64);
  return WriteGraph(graph);
}

CommandResult RunOn(const std::string& model, const std::string& input, int64_t value,
                    const Arguments& flags) {
  const std::string file = WriteTestTensor(input + ".npy", Tensor::Scalar<int64_t>(value));
  return RunCommand(
      Arguments{"run", model, "--input", input + "=" + file, "--output-dir", TestPath("out")} +
      flags);
}

TEST(RunLimits, MoreMemoryThanAllowedIsRefusedWithNodeAndSize) {
  const std::string model = Ramp();
  EXPECT_EQ(RunOn(model, "n", 1000, {"--memory-limit", "64MiB"}).exit_code, 0);
  const CommandResult result = RunOn(model, "n", 100'000'000, {"--memory-limit", "64MiB"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kMemory)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("Range_of_y"), HasSubstr("cannot allocate 800000000 bytes"),
                    HasSubstr("its limit is 67108864 bytes"), HasSubstr("--memory-limit")));
}

// 8 TB: more than any machine of today has.
TEST(RunLimits, WithoutAFlagWhatIsFreeIsTheLimit) {
  const CommandResult result = RunOn(Ramp(), "n", 1'000'000'000'000, {});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kMemory)) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("Range_of_y"), HasSubstr("8000000000000 bytes")));
}

TEST(RunLimits, AnEndlessLoopEndsWithItsName) {
  const CommandResult result = RunOn(Endless(), "x", 1, {"--time-limit", "0.2"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kStalled)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("Loop_of_y"), HasSubstr("after 0.2 s"), HasSubstr("--time-limit")));
}

TEST(RunLimits, ALimitThatIsLongEnoughChangesNothing) {
  const CommandResult result = RunOn(Ramp(), "n", 5, {"--time-limit", "3600"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("time-limit")));
}

}  // namespace
}  // namespace weft::testing
