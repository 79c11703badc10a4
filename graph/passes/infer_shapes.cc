#include "graph/node_inference.h"
#include "graph/passes/pass.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class InferShapesPass final : public Pass {
 public:
  std::string_view name() const override { return "infer_shapes"; }

  absl::StatusOr<bool> Run(Graph& graph) override {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
    std::vector<InferredOutput> scratch;
    bool changed = false;
    for (const NodeId id : order) {
      WEFT_ASSIGN_OR_RETURN(const bool learned, InferInto(graph, graph.node(id), scratch));
      changed = changed || learned;
    }
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> NewInferShapesPass() { return std::make_unique<InferShapesPass>(); }

}  // namespace weft
