// GraphPrograms: the programs of one graph, one per set of types of its inputs.
#ifndef WEFT_EXECUTOR_PROGRAM_GRAPH_PROGRAMS_H_
#define WEFT_EXECUTOR_PROGRAM_GRAPH_PROGRAMS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/program/step_program.h"
#include "graph/graph.h"
#include "ops/value_node.h"
#include "tensor/device.h"
#include "tensor/value.h"

namespace weft {

// Specializes, compiles and runs a forward graph: a whole model, or a body of If, Loop and the
// like. Programs are kept, so that calls with inputs of the same types only run. After many
// different ones, a program that leaves sizes open serves all that come. One thread at a time.
class GraphPrograms {
 public:
  struct Settings {
    Device* device = nullptr;  // REQUIRED
    int threads = 1;
    // Types come from the values alone (what a file declares for a body's inputs is often wrong),
    // and a program is never made for one value.
    bool is_body = false;
    int depth = 0;                    // bodies around this one
    bool runs_nodes_on_host = false;  // as in ExecutorEnvironment
    bool statistics = false;          // times the nodes
    // Asked before each run, of bodies too; its error ends the run. May be null; borrowed.
    const std::function<absl::Status()>* check = nullptr;
  };
  GraphPrograms(Graph graph, const Settings& settings);
  ~GraphPrograms();
  // One value per graph input, of its kind and dtype; gives one per graph output, on the host, in
  // memory that nobody writes to.
  absl::StatusOr<std::vector<Value>> Run(std::vector<Value> inputs);
  const Graph& graph() const;
  // Of all programs so far, nodes of one name added up; empty unless the settings ask for it.
  std::vector<NodeStatistics> statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs bodies by programs of their own. InvalidArgument when bodies lie too deep in bodies.
// `runs_nodes_on_host` as in ExecutorEnvironment, `check` as in the settings above.
std::unique_ptr<BodyRunner> NewBodyRunner(Device& device, int threads, int depth = 0,
                                          bool runs_nodes_on_host = false,
                                          const std::function<absl::Status()>* check = nullptr);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_GRAPH_PROGRAMS_H_
