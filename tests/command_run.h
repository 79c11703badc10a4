// Runs graph_runner's command line in the test's own process, or as the program, and makes the
// files that such tests need.
#ifndef WEFT_TESTS_COMMAND_RUN_H_
#define WEFT_TESTS_COMMAND_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "tensor/tensor.h"

namespace weft::testing {

struct CommandResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Words of a command line.
using Arguments = std::vector<std::string>;
Arguments operator+(Arguments a, const Arguments& b);

// What `graph_runner ARGUMENTS...` does without a terminal.
CommandResult RunCommand(const Arguments& arguments);

// The same by the program that the environment variable WEFT_RUNNER names, as a process of its own:
// for jobs whose workers are processes, because a test cannot start itself as one. The exit code is
// -1 where a signal has ended it. Fails the test where the variable is not set.
CommandResult RunProgram(const Arguments& arguments);

// A path for a file of the running test.
std::string TestPath(const std::string& name);
void WriteTestFile(const std::string& path, const std::string& bytes);
std::string ReadTestFile(const std::string& path);
// Files of the running test, by their paths: a tensor as .npy, and a graph as a model of operator
// set 17 without annotations.
std::string WriteTestTensor(const std::string& name, const Tensor& tensor);
std::string WriteTestModel(const std::string& name, const Graph& graph);

// The example mlp with random images and labels of ten classes, in files of the running test.
struct MlpJob {
  explicit MlpJob(int64_t samples);

  // MODEL --data x=IMAGES --labels LABELS
  Arguments files() const;

  const std::string model = TestPath("mlp.onnx");
  const std::string images = TestPath("x.npy");
  const std::string labels = TestPath("y.npy");
};

// One node of a model made by hand.
struct WireNode {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// The bytes of an ONNX file, good or bad: nodes in the order given, float inputs [N,4] and outputs.
std::string WireModel(int opset, const std::vector<WireNode>& nodes, const std::string& input,
                      const std::string& output);

}  // namespace weft::testing

#endif  // WEFT_TESTS_COMMAND_RUN_H_
