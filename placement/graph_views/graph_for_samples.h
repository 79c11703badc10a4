// The shapes that a graph has for a number of samples, for estimates.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_FOR_SAMPLES_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_FOR_SAMPLES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"

namespace weft {

// The graph whose data inputs have `samples` rows. Computes no values, so that what depends on any
// stays symbolic. InvalidArgument when an input's other sizes are not known.
absl::StatusOr<Graph> GraphForSamples(const Graph& graph, int64_t samples);
// The same, with values: every shape is concrete.
absl::StatusOr<Graph> GraphForSamples(const Graph& graph, int64_t samples,
                                      NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_FOR_SAMPLES_H_
