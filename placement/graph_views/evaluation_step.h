// What of a training graph an evaluation step needs. Internal to placement/.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_EVALUATION_STEP_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_EVALUATION_STEP_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Keeps the graph outputs that do not depend on a backward node, and lets no variable change; what
// thereby died is left to dead-code removal. InvalidArgument when no output is left.
absl::Status KeepEvaluation(Graph& graph);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_EVALUATION_STEP_H_
