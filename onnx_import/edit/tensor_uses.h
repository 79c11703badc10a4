// TensorUses: the float tensors of a file's main graph, and who reads them.
#ifndef WEFT_ONNX_IMPORT_EDIT_TENSOR_USES_H_
#define WEFT_ONNX_IMPORT_EDIT_TENSOR_USES_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/parameter_role.h"
#include "onnx_import/model_file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

// A float initializer or Constant node.
struct FileTensor {
  std::string name;
  int initializer = -1;  // its place; -1 for a Constant node
  int node = -1;         // the Constant's place; -1 for an initializer
  const onnx::TensorProto* proto = nullptr;
  std::string_view encoded;  // the same in the file's bytes
  DType dtype = DType::kInvalid;
  Shape shape = {};
};

// One place that reads a tensor.
struct TensorUse {
  int tensor = 0;
  // By which it is read: the tensor's own, or the output of an Identity node, as exporters write
  // where they merge equal tensors.
  std::string name;
  // The node that reads the name, and its input; -1: an output of the graph, or inside a subgraph.
  int node = -1;
  int input = -1;
  // The node that computes with it, behind those that only move its elements.
  int reader = -1;
  int port = -1;
  ParameterRole role = ParameterRole::kOther;
};

// Views of a file, which must outlive this. Immutable. Whatever the file holds, nothing is followed
// further than the file is long.
class TensorUses {
 public:
  explicit TensorUses(const ModelFile& file);

  const ModelFile& file() const { return file_; }
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // Of one tensor, in the order of nodes.
  const std::vector<TensorUse>& uses(int tensor) const {
    return uses_[static_cast<size_t>(tensor)];
  }
  // The modules that read a tensor as a weight; "" for those of which nothing is known.
  std::set<std::string> WeightReadersOf(int tensor) const;
  // The tensor that a name means, through Identity nodes; -1: none.
  int TensorOf(const std::string& name) const;
  // The same, and through nodes that only move elements.
  int MovedTensorOf(const std::string& name) const;
  // By place: the Identity nodes over tensors, with their output.
  const std::map<int, std::string>& identities() const { return identities_; }
  int num_nodes() const { return graph_.node_size(); }
  const onnx::NodeProto& node(int i) const { return graph_.node(i); }
  // The module that a node belongs to (ModuleOf), whichever of its calls made the node
  // (module_calls.h). "" where nothing says it, and for -1.
  std::string ModuleAt(int node) const;
  // The node that makes a value; -1: none of the main graph does.
  int ProducerOf(const std::string& name) const;
  // (node, input) of the main graph.
  const std::vector<std::pair<int, int>>& ReadersOf(const std::string& name) const;
  bool IsGraphInput(const std::string& name) const { return inputs_.contains(name); }
  bool IsGraphOutput(const std::string& name) const { return outputs_.contains(name); }
  // Whether a subgraph reads it.
  bool IsCaptured(const std::string& name) const { return captured_.contains(name); }
  // Whether a float tensor has this name itself, not by an Identity node.
  bool IsTensor(const std::string& name) const {
    const int tensor = TensorOf(name);
    return tensor >= 0 && tensors_[static_cast<size_t>(tensor)].name == name;
  }
  // Whether any name of the file is this one.
  bool IsTaken(const std::string& name) const { return names_.contains(name); }

 private:
  void AddTensors();
  void AddNodes();
  void AddIdentities();
  void AddUses();
  void AddCalls();
  void AddNames(const onnx::GraphProto& graph, bool is_main);
  // An InstanceNormalization between two Reshapes: what exporters make of GroupNorm, whose scale
  // and bias are constants.
  bool IsPartOfGroupNorm(int node) const;
  // Where the elements are computed with.
  void FollowMoves(TensorUse& use) const;

  const ModelFile& file_;
  const onnx::GraphProto& graph_;
  std::vector<FileTensor> tensors_;
  std::vector<std::vector<TensorUse>> uses_;
  absl::flat_hash_map<std::string, int> tensor_of_;  // by name, also through Identity
  std::map<int, std::string> identities_;
  std::map<std::string, std::string> module_of_call_;  // by the path in the names of nodes
  absl::flat_hash_map<std::string, int> producers_;
  absl::flat_hash_map<std::string, std::vector<std::pair<int, int>>> readers_;
  absl::flat_hash_set<std::string> inputs_;
  absl::flat_hash_set<std::string> outputs_;
  absl::flat_hash_set<std::string> captured_;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_TENSOR_USES_H_
