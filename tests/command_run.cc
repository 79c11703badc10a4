#include "tests/command_run.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "ops/testing/test_tensors.h"
#include "tools/command_line/command_line.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  while (value >= 0x80) {
    bytes.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Field `number` of a protobuf message, as bytes and as a number.
std::string Field(int number, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Field(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}

// ValueInfoProto of float32 [N,4].
std::string ValueInfo(const std::string& name) {
  const std::string shape = Field(1, Field(2, "N")) + Field(1, Field(1, 4));
  return Field(1, name) + Field(2, Field(1, Field(1, 1) + Field(2, shape)));
}

}  // namespace

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

CommandResult RunCommand(const Arguments& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  Console console{&out, &err, /*animated=*/false};
  const int exit_code = RunCommandLine(arguments, console);
  return {exit_code, out.str(), err.str()};
}

CommandResult RunProgram(const Arguments& arguments) {
  const char* const runner = std::getenv("WEFT_RUNNER");
  EXPECT_NE(runner, nullptr) << "WEFT_RUNNER is not set";
  if (runner == nullptr) return {-1, "", ""};
  std::string command = runner;
  for (const std::string& word : arguments) {
    absl::StrAppend(&command, " '", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
  }
  const std::string out = TestPath("stdout"), err = TestPath("stderr");
  const int status = std::system(absl::StrCat(command, " > ", out, " 2> ", err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadTestFile(out), ReadTestFile(err)};
}

std::string TestPath(const std::string& name) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string prefix = std::string(test->test_suite_name()) + "." + test->name();
  std::replace(prefix.begin(), prefix.end(), '/', '_');  // of tests with parameters
  return ::testing::TempDir() + "/" + prefix + "." + name;
}

void WriteTestFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string WriteTestTensor(const std::string& name, const Tensor& tensor) {
  const std::string path = TestPath(name);
  WriteTestFile(path, ToNpy(tensor).value());
  return path;
}

std::string WriteTestModel(const std::string& name, const Graph& graph) {
  const auto bytes = GraphToOnnx(graph, {.annotations = false, .opset = 17});
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const std::string path = TestPath(name);
  WriteTestFile(path, bytes.value_or(""));
  return path;
}

MlpJob::MlpJob(int64_t samples) {
  const CommandResult made = RunCommand({"example", "mlp", "-o", model});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  WriteTestTensor("x.npy", RandomTensor({samples, 1, 28, 28}, 1));
  WriteTestTensor("y.npy", RandomTensor({samples}, 2, 0, 10, DType::kInt64));
}

Arguments MlpJob::files() const {
  return {model, "--data", absl::StrCat("x=", images), "--labels", labels};
}

std::string WireModel(int opset, const std::vector<WireNode>& nodes, const std::string& input,
                      const std::string& output) {
  std::string graph;
  for (const WireNode& node : nodes) {
    std::string bytes;
    for (const std::string& name : node.inputs) bytes += Field(1, name);
    for (const std::string& name : node.outputs) bytes += Field(2, name);
    bytes += Field(3, node.name) + Field(4, node.op);
    graph += Field(1, bytes);
  }
  graph += Field(2, "graph") + Field(11, ValueInfo(input)) + Field(12, ValueInfo(output));
  return Field(1, 8) + Field(7, graph) + Field(8, Field(2, static_cast<uint64_t>(opset)));
}

}  // namespace weft::testing
