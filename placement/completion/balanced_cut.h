// Cuts the forward pass into pipeline stages of about equal work. Internal to placement/.
#ifndef WEFT_PLACEMENT_COMPLETION_BALANCED_CUT_H_
#define WEFT_PLACEMENT_COMPLETION_BALANCED_CUT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// FLOPs of the forward nodes for one micro-batch, by name; empty when the shapes are not known.
std::map<std::string, double> ForwardFlops(const Graph& graph, int64_t samples);

// A stage for the forward nodes, by name: in topological order, cut where about k / stages of the
// FLOPs have passed; within a quarter stage of that, where the fewest bytes cross. Cheap nodes that
// read no other node's output are left out: they follow their readers (see AssignStages). So are
// nodes that nothing of a micro-batch needs (off_path_nodes.h): they lie with what they read.
// Nodes of `pinned` get the stage that is given. Deterministic. InvalidArgument when there are
// fewer nodes than stages, when the pins send the forward pass back, or leave a stage without a
// node.
absl::StatusOr<std::map<std::string, int>> BalancedStages(
    const Graph& graph, int stages, int64_t samples, const std::map<std::string, int>& pinned = {});

// Segments of one stage of a staged training graph: cut likewise, but so that the backward pass
// reads about as many bytes of each, and where few bytes cross that it does not read anyway. Fewer
// where the stage has fewer nodes.
absl::StatusOr<std::map<std::string, int>> BalancedSegments(const Graph& graph, StageId stage,
                                                            int segments, int64_t samples);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COMPLETION_BALANCED_CUT_H_
