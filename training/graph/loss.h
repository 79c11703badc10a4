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

// The output of the model that is its loss by its name: one floating-point number, called "loss"
// or with "loss" as the first or the last of the words of its name ("lm_loss", "loss.1",
// "Loss/mean"), in any case. Words are what letters and digits make. One that is called "loss"
// alone wins over longer names. "" where there is none. InvalidArgument where several are, which
// it lists.
absl::StatusOr<std::string> LossOutputByName(const Graph& model);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_LOSS_H_
