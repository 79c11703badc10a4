// Replaces nodes whose outputs are known by constants: shared by the folding pass and
// specialization.
#ifndef WEFT_GRAPH_CONSTANT_FOLDER_H_
#define WEFT_GRAPH_CONSTANT_FOLDER_H_

#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"

namespace weft {

// Borrows graph and evaluator. Visit producers before consumers, with types inferred.
class ConstantFolder {
 public:
  ConstantFolder(Graph& graph, NodeEvaluator& evaluator) : graph_(graph), evaluator_(evaluator) {}

  // Removes the node and makes its outputs constants when their elements are known from shapes, or
  // when its inputs are constants, the outputs are small (kMaxFoldedBytes each, four times that in
  // all) and there is a kernel. Never a stateful op, a boundary, communication or control flow.
  // True if it did. An error, naming the node, when its operands do not fit.
  absl::StatusOr<bool> Fold(NodeId id);

  // Why the node with this output was not folded though its inputs are constants; OK otherwise.
  absl::Status RefusalOf(ValueId output) const;

 private:
  bool FoldFromElements(const Node& node);
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Node& node) const;
  void MakeConstants(const Node& node, std::vector<Tensor> tensors);
  void Refuse(const Node& node, const absl::Status& why);

  Graph& graph_;
  NodeEvaluator& evaluator_;
  int64_t budget_bytes_ = 4 * kMaxFoldedBytes;
  std::map<ValueId, absl::Status> refusals_;
};

}  // namespace weft

#endif  // WEFT_GRAPH_CONSTANT_FOLDER_H_
