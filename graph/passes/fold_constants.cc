#include "graph/constant_folder.h"
#include "graph/liveness.h"
#include "graph/node_inference.h"
#include "graph/passes/pass.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class FoldConstantsPass final : public Pass {
 public:
  explicit FoldConstantsPass(NodeEvaluator& evaluator) : evaluator_(evaluator) {}

  std::string_view name() const override { return "fold_constants"; }

  absl::StatusOr<bool> Run(Graph& graph) override {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
    const std::vector<bool> live = LiveNodes(graph);
    ConstantFolder folder(graph, evaluator_);
    std::vector<InferredOutput> scratch;
    // A node behind a folded one may learn its shape from the new constant.
    std::vector<bool> became_constant(graph.value_capacity());
    bool changed = false;
    for (const NodeId id : order) {
      if (!live[id.value]) continue;
      const Node& node = graph.node(id);
      for (const ValueId input : node.inputs) {
        if (!input.valid() || !became_constant[input.value]) continue;
        WEFT_RETURN_IF_ERROR(InferInto(graph, node, scratch).status());
        break;
      }
      const std::vector<ValueId> outputs = node.outputs;
      WEFT_ASSIGN_OR_RETURN(const bool folded, folder.Fold(id));
      if (!folded) continue;
      changed = true;
      for (const ValueId output : outputs) {
        if (output.valid()) became_constant[output.value] = true;
      }
    }
    return changed;
  }

 private:
  NodeEvaluator& evaluator_;
};

}  // namespace

std::unique_ptr<Pass> NewFoldConstantsPass(NodeEvaluator& evaluator) {
  return std::make_unique<FoldConstantsPass>(evaluator);
}

}  // namespace weft
