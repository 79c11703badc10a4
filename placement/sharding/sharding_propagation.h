// Chooses how every node is sharded along the tensor axis. Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_SHARDING_PROPAGATION_H_
#define WEFT_PLACEMENT_SHARDING_SHARDING_PROPAGATION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/sharding/node_sharding.h"

namespace weft {

// The sharding of every node and value along the tensor axis.
struct ShardingDecisions {
  std::vector<NodeSharding> nodes;   // by NodeId
  std::vector<AxisSharding> values;  // by ValueId: as users find it (a hint converts what was made)
  std::map<std::string, AxisSharding> variables;
  // Shardings of the outputs of Accumulate nodes, by name.
  std::map<std::string, AxisSharding> accumulated;
};

// The inputs of PropagateShardings besides graph and hints.
struct PropagationOptions {
  int shards = 1;
  // Plan::tensor_shardings: names of node outputs, names or patterns of variables. Names that fit
  // nothing here are ignored: see CheckShardingHints.
  std::map<std::string, AxisSharding> hints;
  // ShardingDecisions::accumulated of another micro-batch size, which these must agree with.
  std::map<std::string, AxisSharding> accumulated;
};

// Walks a graph with concrete global shapes in topological order. Each node stays replicated,
// splits one factor of its schema's rule, or passes Partial where the rule says it is linear:
// whichever needs the fewest bytes to convert its inputs and what is hinted of its outputs, then
// makes most of these as they are hinted, then converts the fewest, then the first of these.
// Variables lie as hinted, optimizer state like its parameter. InvalidArgument naming the value
// when a hint does not fit its shape or the number of shards.
absl::StatusOr<ShardingDecisions> PropagateShardings(const Graph& graph,
                                                     const PropagationOptions& options);

// InvalidArgument when a hint names no variable and no node output of the logical graph.
absl::Status CheckShardingHints(const Graph& graph,
                                const std::map<std::string, AxisSharding>& hints);

// Replaces forward nodes by their schema's expansion where they read a variable whose hint their
// own rule cannot take as it lies, and the expansion exists. Shapes are concrete and global.
absl::Status ExpandForHints(Graph& graph, const PropagationOptions& options);

// Replaces forward nodes by their schema's expansion where their own rule leaves an axis of a
// matrix whole that the expansion might split: a search then sees all ways that ExpandForHints can
// follow. Shapes are concrete and global. Parameters and values keep their names.
absl::Status ExpandForSplits(Graph& graph, int shards);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_SHARDING_PROPAGATION_H_
