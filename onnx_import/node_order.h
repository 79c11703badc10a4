// The order in which the nodes of one graph or function can be converted.
#ifndef WEFT_ONNX_IMPORT_NODE_ORDER_H_
#define WEFT_ONNX_IMPORT_NODE_ORDER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// Indices of `nodes`, producers first. ONNX wants files sorted, and then this is the file's order;
// other acyclic files are sorted here. `is_defined` says whether a name that no node produces
// exists (graph inputs, initializers, values of enclosing graphs). InvalidArgument for a name that
// nobody defines and for cycles, naming nodes. REQUIRES: output names are unique. Linear time for
// sorted files.
absl::StatusOr<std::vector<int>> OrderNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
    const std::function<bool(const std::string&)>& is_defined);

// Names that a node takes from around it: its inputs and what its subgraphs use and do not define.
std::vector<absl::string_view> NamesUsedBy(const onnx::NodeProto& node);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_NODE_ORDER_H_
