// The nodes of a step that measures the noise of its gradient.
#ifndef WEFT_TRAINING_SCALING_NOISE_NODES_H_
#define WEFT_TRAINING_SCALING_NOISE_NODES_H_

#include <map>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Outputs of a measuring step, floating scalars: the fields of NoiseSums.
inline constexpr char kNoiseMicroSquares[] = "weft.report/noise_micro_squares";
inline constexpr char kNoiseWholeSquare[] = "weft.report/noise_whole_square";
inline constexpr char kNoiseMicroBatches[] = "weft.report/noise_micro_batches";
inline constexpr char kNoiseWeight[] = "weft.report/noise_weight";

// Adds to a training graph what is measured of a micro-batch: for each of `gradients` (variable ->
// gradient of the sum of the losses) its square over the micro-batch's weight, at the place of the
// gradient, and the sums of these over micro-batches; with the outputs. `weight`: the accumulated
// weight of the loss, made by an Accumulate node. `whole_square`: the sum of the squares of all
// accumulated gradients. A norm is of the whole on any mesh: the sums are of whole tensors, and the
// partitioner adds up shards, replicas and stages as for --clip-norm. A micro-batch of weight 0
// (all its labels are ignored) does not count. Changes no other node.
// Internal where `weight` is no sum over micro-batches.
absl::Status AddNoiseSums(Graph& graph, ValueId weight, const std::map<ValueId, ValueId>& gradients,
                          ValueId whole_square);

}  // namespace weft

#endif  // WEFT_TRAINING_SCALING_NOISE_NODES_H_
