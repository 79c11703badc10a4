// The losses one by one, and the parts that they share with the metrics. Internal to training/.
#ifndef WEFT_TRAINING_GRAPH_LOSS_PARTS_H_
#define WEFT_TRAINING_GRAPH_LOSS_PARTS_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "training/graph/training_spec.h"

namespace weft {

// The output that the loss looks at.
absl::StatusOr<ValueId> FindPrediction(const Graph& graph, const LossSpec& spec);
// The input "labels", added with this type if it is not there.
ValueId LabelsInput(Graph& graph, const ValueType& type);
// Labels of the type and shape of the prediction.
ValueId LabelsLike(GraphBuilder& builder, ValueId prediction);
// Scores [N,C,d...], classes second, as SoftmaxCrossEntropyLoss wants them, and labels [N,d...]
// in int64 (the classes with the largest share when they are soft).
struct ClassScores {
  ValueId scores;
  ValueId labels;
};
absl::StatusOr<ClassScores> ScoresAndLabels(GraphBuilder& builder, const LossSpec& spec);

// Which labels have spec.ignore_index, which must be set.
ValueId IsIgnored(GraphBuilder& builder, const LossSpec& spec, ValueId labels);

// Whether the loss is one of those of scores for classes.
bool IsClassification(const LossSpec& spec);
absl::StatusOr<MeanParts> AddCrossEntropy(GraphBuilder& builder, const LossSpec& spec);

// Losses that are a sum over elements: mse, mae, huber, bce_with_logits, kl_div.
std::vector<std::string> ElementwiseLossKinds();
absl::StatusOr<MeanParts> AddElementwiseLoss(GraphBuilder& builder, const LossSpec& spec);

// All elements of x added up.
ValueId SumOfAll(GraphBuilder& builder, ValueId x);
// How many samples (rows) x has, as a scalar of its dtype.
ValueId SampleCount(GraphBuilder& builder, ValueId x);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_LOSS_PARTS_H_
