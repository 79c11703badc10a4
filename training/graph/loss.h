// Losses as nodes.
#ifndef WEFT_TRAINING_GRAPH_LOSS_H_
#define WEFT_TRAINING_GRAPH_LOSS_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "training/graph/training_spec.h"

namespace weft {

// Adds the loss of one micro-batch and, unless the graph computes it, the input "labels", and takes
// the mean apart: sum over the samples, and the weight to divide it by (both float scalars). A loss
// of the graph's own whose op knows its parts (SoftmaxCrossEntropyLoss, ...) is taken apart by the
// schema; any other is held to be a mean over samples: its sum is value x samples.
absl::StatusOr<MeanParts> AddLoss(GraphBuilder& builder, const LossSpec& spec);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_LOSS_H_
