#include "placement/graph_views/graph_for_samples.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"

namespace weft {
namespace {

class NoEvaluator final : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node&,
                                               const std::vector<Tensor>&) override {
    return absl::UnimplementedError("values are not needed to estimate costs");
  }
};

absl::Status SizeIsOpen(const ValueDef& input) {
  return absl::InvalidArgumentError(
      absl::StrCat("data input '", input.name, "' is ", input.type.ToString(),
                   "; every axis but the first, which counts the samples, must have a size"));
}

}  // namespace

absl::StatusOr<Graph> GraphForSamples(const Graph& graph, int64_t samples) {
  NoEvaluator evaluator;
  return GraphForSamples(graph, samples, evaluator);
}

absl::StatusOr<Graph> GraphForSamples(const Graph& graph, int64_t samples,
                                      NodeEvaluator& evaluator) {
  Specialization shapes;
  for (const ValueId id : graph.inputs()) {
    const SymbolicShape& shape = graph.value(id).type.shape;
    if (graph.input_role(id) != InputRole::kData || !shape.has_rank() || shape.rank() == 0)
      continue;
    std::vector<int64_t> dims = {samples};
    for (int axis = 1; axis < shape.rank(); ++axis) {
      if (!shape.dim(axis).is_known()) return SizeIsOpen(graph.value(id));
      dims.push_back(shape.dim(axis).size());
    }
    shapes.input_shapes[graph.value(id).name] = Shape(dims);
  }
  return Specialize(graph, shapes, evaluator);
}

}  // namespace weft
