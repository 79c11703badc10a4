// The bodies of If, Loop and the like, and the values that they capture.
#ifndef WEFT_GRAPH_NODE_BODIES_H_
#define WEFT_GRAPH_NODE_BODIES_H_

#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

// The attribute that lists what body `body` of a node takes from outside: its last inputs.
std::string CapturesAttribute(const std::string& body);

// A body of a node, and where the values it takes from outside are among the node's inputs. Bodies'
// captures come last there, in order of the bodies' names.
struct NodeBody {
  std::string name;
  Graph* graph = nullptr;
  int first_capture = 0;  // index into Node::inputs
  int captures = 0;
  int num_inputs() const { return static_cast<int>(graph->inputs().size()) - captures; }
};
std::vector<NodeBody> BodiesOf(const Node& node);
// How many of the node's inputs are its own.
int NumOwnInputs(const Node& node);

// Captured values that are constants, or variables that nothing updates, become constants of the
// body that takes them.
void MoveConstantsIntoBodies(Graph& graph);

}  // namespace weft

#endif  // WEFT_GRAPH_NODE_BODIES_H_
