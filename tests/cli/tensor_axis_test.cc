// A tensor axis along which nothing can be split: every command that plans refuses it, with the
// reason.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "ops/testing/test_tensors.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 16;

void AddColumn(::onnx::ValueInfoProto& value, const std::string& name) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(::onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  type.mutable_shape()->add_dim()->set_dim_value(1);
}

// y = x w for one number per sample: w has one element.
std::string ModelOfOneWeight() {
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  ::onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("one");
  AddColumn(*graph.add_input(), "x");
  AddColumn(*graph.add_output(), "y");
  auto& weight = *graph.add_initializer();
  weight.set_name("weight");
  weight.set_data_type(::onnx::TensorProto::FLOAT);
  weight.add_dims(1);
  weight.add_dims(1);
  weight.add_float_data(0.5f);
  auto& product = *graph.add_node();
  product.set_op_type("MatMul");
  product.set_name("product");
  product.add_input("x");
  product.add_input("weight");
  product.add_output("y");
  const std::string path = TestPath("one.onnx");
  WriteTestFile(path, model.SerializeAsString());
  return path;
}

// Each command on the model, its data and two workers, with a plan that has tp=2.
std::vector<std::vector<std::string>> Commands(const std::vector<std::string>& plan) {
  const std::string model = ModelOfOneWeight();
  const std::string x = TestPath("x.npy");
  const std::string y = TestPath("y.npy");
  WriteTestFile(x, ToNpy(RandomTensor({kSamples, 1}, 1)).value());
  WriteTestFile(y, ToNpy(RandomTensor({kSamples, 1}, 2)).value());
  std::vector<std::vector<std::string>> commands = {
      {"train", "--steps", "1"}, {"eval", "--metric", "mse"}, {"verify"}, {"plan"}, {"simulate"}};
  for (std::vector<std::string>& command : commands) {
    command.insert(command.end(), {model, "--data", "x=" + x, "--labels", y, "--loss", "mse",
                                   "--batch", "16", "--local", "2"});
    // A weight of one element is taken for a constant unless it is named.
    if (command.front() != "eval") command.insert(command.end(), {"--trainable", "weight"});
    command.insert(command.end(), plan.begin(), plan.end());
  }
  return commands;
}

void ExpectRefused(const std::vector<std::string>& plan) {
  for (const std::vector<std::string>& command : Commands(plan)) {
    SCOPED_TRACE(command.front());
    const CommandResult result = RunCommand(command);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("tp=2 splits nothing: no parameter of the model has an axis "
                                      "of at least 2 elements"));
  }
}

// Both ranks did all the work, sent nothing, and nobody was told.
TEST(TensorAxis, EveryCommandRefusesOneThatSplitsNothing) { ExpectRefused({"--parallel", "tp=2"}); }

// Hints that keep parameters whole went past that refusal.
TEST(TensorAxis, EveryCommandRefusesAPlanFileWhoseHintsSplitNothing) {
  const std::string path = TestPath("plan.yaml");
  WriteTestFile(path, "mesh: {tensor: 2}\ntensor_shardings:\n  weight: R\n");
  ExpectRefused({"--plan", path});
}

// The same commands take the model on a mesh without that axis: the refusal is the axis's.
TEST(TensorAxis, TheModelRunsOnTwoReplicas) {
  for (const std::vector<std::string>& command : Commands({"--parallel", "dp=2"})) {
    if (command.front() != "plan" && command.front() != "simulate") continue;
    const CommandResult result = RunCommand(command);
    EXPECT_EQ(result.exit_code, 0) << command.front() << ": " << result.err;
  }
}

}  // namespace
}  // namespace weft::testing
