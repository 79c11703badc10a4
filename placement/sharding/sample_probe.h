// What a node without index notation does with the samples of the batch, found by running it.
// Internal to placement/sharding.
#ifndef WEFT_PLACEMENT_SHARDING_SAMPLE_PROBE_H_
#define WEFT_PLACEMENT_SHARDING_SAMPLE_PROBE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/inference.h"
#include "placement/sharding/batch_place.h"

namespace weft {

// Runs the node on made-up values, then with other values for one sample, and looks at what
// changes. A place for each output: kSplit where a sample's outputs come from this sample alone;
// kLost where they do not; kNone where nothing changed, which proves nothing. `inputs`: a place for
// each input. `grown`: of each output the axis that grows with the number of samples
// (PlaceByShape): no other one holds them, and what has none (kNone) holds none; kLost = not known.
// Nullopt where the node is too large to be tried, draws random numbers, has bodies, or does not
// run on such values. REQUIRES: concrete shapes, samples >= 2.
std::optional<std::vector<BatchPlace>> ProbeSamples(const Graph& graph, const Node& node,
                                                    const std::vector<BatchPlace>& inputs,
                                                    const std::vector<BatchPlace>& grown,
                                                    int64_t samples, NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_SAMPLE_PROBE_H_
