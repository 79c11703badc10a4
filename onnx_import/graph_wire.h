// A Graph as an ONNX file of our own making: dumps, the wire format of partitions, new models.
#ifndef WEFT_ONNX_IMPORT_GRAPH_WIRE_H_
#define WEFT_ONNX_IMPORT_GRAPH_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// What GraphToOnnx writes.
struct GraphToOnnxOptions {
  // Write the initial values of variables. Without them a variable is a graph input of the file.
  bool weights = true;
  // Write what ONNX does not know as metadata_props ("weft.phase", "weft.stage", "weft.origin",
  // ...): with it GraphFromOnnx gives the same graph back. False writes a plain model, with
  // variables as initializers: for models that other programs shall read.
  bool annotations = true;
  // The operator set the file claims. A graph holds the newest forms; a caller that knows that its
  // operators had the same form earlier may say so. The file's IR version is the oldest that has
  // this set and what a graph needs of the format: many programs stop at the one they know.
  int64_t opset = 28;
  // Where not empty: the initial values of variables, whether the graph has them or not, lie in the
  // file of this name in the model's folder, where OffsetsBeside says. The caller writes it.
  std::string weights_beside = {};
};

// Where the values of each variable begin in the file of GraphToOnnxOptions::weights_beside, in the
// order of Graph::variables: one after the other, at multiples of 4096 bytes. Last the size of the
// file. REQUIRES: variables of concrete shapes.
std::vector<int64_t> OffsetsBeside(const Graph& graph);

// The file's bytes; equal graphs give equal bytes. Nodes come in topological order. ai.weft
// operators stay as they are, in their domain: Netron shows the file, other runtimes cannot run it.
// InvalidArgument for a graph with a cycle, ResourceExhausted above 2 GiB. REQUIRES: tensors on the
// host.
absl::StatusOr<std::string> GraphToOnnx(const Graph& graph, const GraphToOnnxOptions& options = {});

// The graph that GraphToOnnx wrote: the same order of node ids and value ids (without holes; value
// ids only where those of outputs ascend with their nodes), names, types, phases, stages, origins,
// roles, constants and variables; only what inference knew of elements (ValueDef::elements) is not
// in the file. Schemas are looked up anew. The bytes may come from anywhere: InvalidArgument or
// ResourceExhausted for what is no such file; PermissionDenied for an operator that the process's
// policy does not allow (codec/operator_check.h). Operators are taken as they stand: import a model
// of others with ImportModel.
absl::StatusOr<Graph> GraphFromOnnx(std::string_view bytes);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_GRAPH_WIRE_H_
