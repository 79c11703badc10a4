// What `graph_runner run` may take: memory and time. A model of three lines asked for 8 GB, and
// another one never ended and said nothing.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

std::string Write(const ::onnx::GraphProto& graph) {
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
  return Write(graph);
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
  return Write(graph);
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
