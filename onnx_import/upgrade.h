// How nodes of older operator-set versions are rewritten to their newest form. One file of ops/ per
// family registers its rewrites; nothing lists them.
#ifndef WEFT_ONNX_IMPORT_UPGRADE_H_
#define WEFT_ONNX_IMPORT_UPGRADE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// One node on its way into the graph: `spec` has the file's attributes and the graph's inputs, and
// the node is added after the rewrite. Nodes added through the context come before it.
class NodeUpgrade {
 public:
  NodeUpgrade(Graph& graph, Graph::NodeSpec& spec, int64_t version)
      : spec(spec), version(version), graph_(graph) {}

  Graph::NodeSpec& spec;
  const int64_t version;  // of the operator set that the node was written for

  bool HasInput(size_t i) const { return i < spec.inputs.size() && spec.inputs[i].valid(); }
  bool HasOutput(size_t i) const { return i < spec.outputs.size() && !spec.outputs[i].empty(); }
  // kInvalid when it is not known at import.
  DType InputDType(size_t i) const;
  // Nullopt when it is not known at import.
  std::optional<int> InputRank(size_t i) const;

  // A constant named after the node and `suffix`.
  ValueId Constant(std::string_view suffix, Tensor tensor);
  // A node of ONNX's domain with one output, named after this node and `suffix`.
  ValueId AddNode(std::string_view suffix, const std::string& op, std::vector<ValueId> inputs,
                  Attributes attributes);
  // Sets input i, with kNoValue for those between.
  void SetInput(size_t i, ValueId value);
  // Moves an INTS attribute, if present, to input i as an int64 vector.
  void MoveIntsToInput(const std::string& attribute, size_t i);
  // Moves a FLOAT attribute, if present, to input i as a scalar of `dtype` (float32 when it is
  // kInvalid).
  void MoveFloatToInput(const std::string& attribute, size_t i, DType dtype);

 private:
  Graph& graph_;
};

// Returns InvalidArgument or Unimplemented without naming node or file.
using UpgradeFn = std::function<absl::Status(NodeUpgrade&)>;

// The rewrites of this process; filled by static registration, read-only afterwards.
class UpgradeRegistry {
 public:
  static UpgradeRegistry& Global();
  // `rewrite` brings nodes of versions below `below` to the form that `below` has. Several steps of
  // one operator run in order of `below`. Returns true.
  bool Register(const std::string& op, int64_t below, UpgradeFn rewrite);
  // Runs the steps that a node of ONNX's domain needs.
  absl::Status Run(NodeUpgrade& node) const;

 private:
  std::map<std::string, std::map<int64_t, UpgradeFn>> steps_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_UPGRADE_H_
