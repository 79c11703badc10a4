// From the shardings that a plan gives to those that follow from them. Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_DERIVED_SHARDINGS_H_
#define WEFT_PLACEMENT_SHARDING_DERIVED_SHARDINGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// Adds to `shardings` (names of variables and node outputs) each trainable variable that it does
// not name and that all its forward readers read split in one and the same way: the bias of a layer
// whose weight is split by columns. Kept whole it would cost its memory on every rank, a gather of
// its gradient, and could not be split over the data axis too. Then the gradients of split
// variables that a rank would else make whole (an embedding's). Looks at micro-batches of
// `samples`; nothing is added where their shapes are not known. InvalidArgument for a sharding that
// does not fit.
absl::Status DeriveShardings(const Graph& graph, int shards, int64_t samples,
                             std::map<std::string, AxisSharding>& shardings);
// The same for a graph with concrete shapes that was propagated with these shardings.
void DeriveShardings(const Graph& graph, int shards, const ShardingDecisions& decisions,
                     std::map<std::string, AxisSharding>& shardings);

// Shardings by name: patterns become the names of the variables that they fit.
std::map<std::string, AxisSharding> ResolveShardings(
    const Graph& graph, const std::map<std::string, AxisSharding>& shardings);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_DERIVED_SHARDINGS_H_
