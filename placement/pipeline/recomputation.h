// Recomputation (activation checkpointing): the backward pass computes what segments of the forward
// pass made a second time instead of keeping it. (Chen et al., Training Deep Nets with Sublinear
// Memory Cost, 2016.) Internal to placement/, but for the prefix.
#ifndef WEFT_PLACEMENT_PIPELINE_RECOMPUTATION_H_
#define WEFT_PLACEMENT_PIPELINE_RECOMPUTATION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace weft {

// Stands before the names of nodes and values that are made a second time.
inline constexpr char kRecomputedPrefix[] = "recompute/";

// By name, the segment of each forward node; "" = its results are kept. From plan.recompute, with
// the stars of segments' names filled in. InvalidArgument when an entry fits no forward node of a
// training graph.
using RecomputedSegments = std::map<std::string, std::string>;
absl::StatusOr<RecomputedSegments> FindRecomputedSegments(const Graph& graph, const Plan& plan);

// Forward nodes of a staged graph that the backward pass must run again, in topological order.
//
//  * A segment's part on each stage is a segment of its own.
//  * What the backward nodes of a segment's forward nodes read of the segment is computed anew, and
//    whatever that needs of the segment. What they need from outside is kept, and so is what others
//    on the stage need of the segment in the backward pass: its outputs as a rule.
//  * Nodes whose results may differ when run again (OpSchema::stateful), nodes with subgraphs and
//    communication are not run again: what they make is kept.
absl::StatusOr<std::vector<NodeId>> FindRecomputedNodes(const Graph& graph,
                                                        const RecomputedSegments& segments);

// True for the copies that AddRecomputation makes, in partitions too.
bool IsRecomputed(const Node& node);

// A node that runs again.
struct RecomputedNode {
  NodeId copy;
  NodeId original;
};

// Adds the copies as nodes of the backward phase, named after the originals with
// kRecomputedPrefix, their origins pointing to them; the segments' backward nodes read them. The
// graph's shapes are concrete. Optional outputs that nobody reads again are not asked for, so a
// normalization's running statistics are not updated twice. In topological order.
absl::StatusOr<std::vector<RecomputedNode>> AddRecomputation(Graph& graph,
                                                             const RecomputedSegments& segments);

// `order` with each copy put just before the first node that needs it.
std::vector<NodeId> PlaceRecomputed(const Graph& graph, const std::vector<NodeId>& order,
                                    const std::vector<RecomputedNode>& copies);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_RECOMPUTATION_H_
