// Shape inference and specialization.
#ifndef WEFT_GRAPH_INFERENCE_H_
#define WEFT_GRAPH_INFERENCE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Computes a node whose inputs are all known; implemented over the kernels by ops/. Thread-safe.
class NodeEvaluator {
 public:
  virtual ~NodeEvaluator() = default;
  // One tensor per output (invalid where the output is not wanted). Unimplemented when there is no
  // kernel; InvalidArgument when the operands do not fit.
  virtual absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const Node& node,
                                                       const std::vector<Tensor>& inputs) = 0;
};

// Largest tensor that folding may make (a bomb guard; docs: reliability rules).
inline constexpr int64_t kMaxFoldedBytes = int64_t{64} << 20;

// Fills in the types of all node outputs, in topological order, with symbols where sizes are not
// known. Nodes without a schema leave their outputs unknown.
absl::Status InferShapes(Graph& graph);
// The types of one node's outputs (its inputs' types are set).
absl::Status InferNode(Graph& graph, NodeId node);

// What is fixed when a program is compiled.
struct Specialization {
  // Concrete shapes of graph inputs, by name.
  std::map<std::string, Shape> input_shapes;
  // Inputs whose very values are fixed (they decide shapes): they become constants.
  std::map<std::string, Tensor> input_values;
  // What depends on data stays unknown, for a program that finds it out as it runs. Otherwise it is
  // refused.
  bool allow_unknown_shapes = false;
};

// Returns a copy in which every shape is concrete (or as many as can be known): binds the inputs,
// infers, evaluates what is known (shape arithmetic, constants) and removes what thereby died.
// InvalidArgument naming the node where inputs do not fit; Unimplemented naming the node and input
// whose value decides a shape but depends on data, unless that is allowed.
absl::StatusOr<Graph> Specialize(const Graph& graph, const Specialization& specialization,
                                 NodeEvaluator& evaluator);

// Names of graph inputs whose values decide shapes and which a caller of Specialize must fix.
std::vector<std::string> ValueInputsOf(const Graph& graph);

}  // namespace weft

#endif  // WEFT_GRAPH_INFERENCE_H_
