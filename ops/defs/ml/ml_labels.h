// What the classifiers of ai.onnx.ml share: they compute the number of a class and scores by an op
// of ours, and look the class's label, a number or a string, up.
#ifndef WEFT_OPS_DEFS_ML_ML_LABELS_H_
#define WEFT_OPS_DEFS_ML_ML_LABELS_H_

#include <string>

#include "graph/op_schema.h"

namespace weft {

// A classifier's outputs: labels [N] and float32 scores [N, classes]. `int_labels`: the name of the
// attribute with labels that are numbers; strings are in classlabels_strings. One class is a choice
// between it and its opposite: 0 or "".
InferFn InferClassifier(const std::string& int_labels);

// The classifier as ai.weft::`op` with the attribute `classes`, and a Gather of labels.
ExpandFn ExpandClassifier(const std::string& op, const std::string& int_labels);

// Outputs of the ops of ours: class int64 [N], scores float32 [N, columns].
absl::Status InferClassify(InferenceContext& context);

// Columns of the scores of `classes` classes: 2 for one.
int64_t ScoreColumns(int64_t classes);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_ML_ML_LABELS_H_
