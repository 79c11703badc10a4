#include "graph/expansion.h"
#include "graph/passes/pass.h"

namespace weft {
namespace {

class ExpandFunctionsPass final : public Pass {
 public:
  explicit ExpandFunctionsPass(RunsNodeFn runs_node) : runs_node_(std::move(runs_node)) {}

  std::string_view name() const override { return "expand_functions"; }

  absl::StatusOr<bool> Run(Graph& graph) override { return ExpandFunctions(graph, runs_node_); }

 private:
  RunsNodeFn runs_node_;
};

}  // namespace

std::unique_ptr<Pass> NewExpandFunctionsPass(RunsNodeFn runs_node) {
  return std::make_unique<ExpandFunctionsPass>(std::move(runs_node));
}

}  // namespace weft
