// Runs graph_runner's command line in the test's own process.
#ifndef WEFT_TESTS_COMMAND_RUN_H_
#define WEFT_TESTS_COMMAND_RUN_H_

#include <string>
#include <vector>

namespace weft::testing {

struct CommandResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// What `graph_runner ARGUMENTS...` does without a terminal.
CommandResult RunCommand(const std::vector<std::string>& arguments);

// A path for a file of the running test.
std::string TestPath(const std::string& name);
void WriteTestFile(const std::string& path, const std::string& bytes);
std::string ReadTestFile(const std::string& path);

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
