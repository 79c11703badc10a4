#include "graph/liveness.h"
#include "graph/passes/pass.h"

namespace weft {
namespace {

class RemoveDeadCodePass final : public Pass {
 public:
  std::string_view name() const override { return "remove_dead_code"; }
  absl::StatusOr<bool> Run(Graph& graph) override { return RemoveDeadCode(graph); }
};

}  // namespace

std::unique_ptr<Pass> NewRemoveDeadCodePass() { return std::make_unique<RemoveDeadCodePass>(); }

}  // namespace weft
