// The initial values that a model's own training_info defines.
#ifndef WEFT_TRAINING_GRAPH_MODEL_INITIALIZATION_H_
#define WEFT_TRAINING_GRAPH_MODEL_INITIALIZATION_H_

#include "absl/status/statusor.h"
#include "onnx_import/importer.h"

namespace weft {

// Runs the model's own initialization, and gives its results to the initializers that it binds:
// variables and constants of the graph. Those of an algorithm that the graph is without are left
// out. Returns the number of tensors set. InvalidArgument when one does not fit, naming the
// binding.
absl::StatusOr<int> InitializeModel(ImportedModel& model);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_MODEL_INITIALIZATION_H_
