// Graphs inside nodes: the bodies of If, Loop and Scan. A node with a body runs on every rank of
// its tensor-parallel group alike (replicated), on one stage, body and all: whether and how often a
// body runs depends on data, so nothing in it may wait for another rank.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_CONTROL_FLOW_BODIES_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_CONTROL_FLOW_BODIES_H_

#include "absl/status/status.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace weft {

bool HasBody(const Node& node);

// InvalidArgument naming node, value and reason when a body has a collective, Send or Recv; when
// the plan shards a value that is made in a body (a conversion would have to stand there); or when
// it gives a node of a body a stage (a Send would).
absl::Status CheckBodies(const Graph& graph, const Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_CONTROL_FLOW_BODIES_H_
