// Pass and PassPipeline: named rewrites of a graph, verified before and after.
#ifndef WEFT_GRAPH_PASSES_PASS_H_
#define WEFT_GRAPH_PASSES_PASS_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/expansion.h"
#include "graph/graph.h"
#include "graph/inference.h"

namespace weft {

// Sees a graph after a pass, by the pass's name: what dumps are written from. An error ends what is
// under way and is its result. May be null.
using GraphObserver = std::function<absl::Status(std::string_view pass, const Graph&)>;

// A rewrite that keeps what the graph computes. Stateless between runs.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string_view name() const = 0;  // "fold_constants"
  // True if the graph changed.
  virtual absl::StatusOr<bool> Run(Graph& graph) = 0;
};

// Runs passes in order; the verifier runs before the first and after each. An error names the pass.
class PassPipeline {
 public:
  PassPipeline& Add(std::unique_ptr<Pass> pass);
  PassPipeline& Disable(std::set<std::string> names);
  // `dump` is called after each pass that changed the graph.
  PassPipeline& DumpAfterEach(GraphObserver dump);
  // Names of the passes that changed the graph, in order.
  absl::StatusOr<std::vector<std::string>> Run(Graph& graph);
  std::vector<std::string> pass_names() const;

 private:
  std::vector<std::unique_ptr<Pass>> passes_;
  std::set<std::string> disabled_;
  GraphObserver dump_;
};

std::unique_ptr<Pass> NewInferShapesPass();
std::unique_ptr<Pass> NewFoldConstantsPass(NodeEvaluator& evaluator);
std::unique_ptr<Pass> NewRemoveDeadCodePass();
std::unique_ptr<Pass> NewMergeCommonSubexpressionsPass();
// Replaces nodes that `runs_node` does not know by their expansions (graph/expansion.h).
std::unique_ptr<Pass> NewExpandFunctionsPass(RunsNodeFn runs_node);
// imported -> simplified: inference, folding, merging, dead code.
PassPipeline SimplifyPipeline(NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_GRAPH_PASSES_PASS_H_
