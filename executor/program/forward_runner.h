// Runs a whole graph once on given inputs: `graph_runner run`, conformance, tests.
#ifndef WEFT_EXECUTOR_PROGRAM_FORWARD_RUNNER_H_
#define WEFT_EXECUTOR_PROGRAM_FORWARD_RUNNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/program/step_program.h"
#include "graph/graph.h"
#include "tensor/device.h"
#include "tensor/value.h"

namespace weft {

// Specializes, compiles and runs forward graphs; keeps one program per set of input shapes (and of
// input values that decide shapes), so that calls with the same shapes only run; see
// graph_programs.h. One thread at a time.
class ForwardRunner {
 public:
  struct Options {
    Device* device = &CpuDevice();  // a model that nobody has placed runs on the host
    int threads = 1;
    // Times every node: two clock reads each. See statistics().
    bool statistics = false;
    // As in ExecutorEnvironment.
    bool runs_nodes_on_host = false;
    // Asked before each run, and before each run of a body (a round of a Loop or a Scan); its error
    // ends the run, and names the node that has the body. Null: nobody is asked.
    std::function<absl::Status()> check = nullptr;
  };
  ForwardRunner(Graph graph, Options options);
  ~ForwardRunner();
  // Inputs by name; outputs by name, in host memory of their own. InvalidArgument for a missing,
  // unknown or ill-fitting input, naming it with both shapes.
  absl::StatusOr<std::map<std::string, Value>> Run(const std::map<std::string, Value>& inputs);
  // Time and calls per node of all runs so far, over all programs; empty unless asked for in the
  // options. Nodes that take no time of their own (a Reshape in place) are left out.
  std::vector<NodeStatistics> statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_FORWARD_RUNNER_H_
