// The training that a model brings along: ONNX's TrainingInfoProto (IR version 7 and newer).
#ifndef WEFT_ONNX_IMPORT_TRAINING_INFO_H_
#define WEFT_ONNX_IMPORT_TRAINING_INFO_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/importer.h"
#include "onnx_import/model_file.h"

namespace weft {

// What a file has of it, by its first training_info that has any.
struct TrainingInfo {
  bool has_algorithm = false;       // update_binding binds something
  bool has_initialization = false;  // initialization_binding does
};
TrainingInfo TrainingInfoOf(const ModelFile& file);

// Checks graphs and bindings of all of a file's training_info: the graphs are well formed, an
// algorithm defines no name of the inference graph's again, and the bindings, each key once, go
// from an initializer of the inference graph or of the same training_info's algorithm to an output
// of the initialization, of the algorithm or of the inference graph. InvalidArgument naming the
// binding. OK for a file without any.
absl::Status CheckTrainingInfo(const ModelFile& file);

// One step of the model's own training: the inference graph and the algorithm in one graph, as the
// standard puts them together. Initializers that update_binding names, of any numeric type, are
// variables whose update is the value that they are bound to; all others are constants. The outputs
// are those of both graphs. Names of the inference graph stay what they are.
//
// ImportedModel::parameters are the variables, so that the exporter writes all of them, the
// algorithm's too. What CheckTrainingInfo and ImportModel say; InvalidArgument without an
// algorithm; Unimplemented for several, which would have to run one after the other.
absl::StatusOr<ImportedModel> ImportTrainingStep(const ModelFile& file);

// A graph without inputs whose outputs, in order, are new values of `initializers`.
struct InitializationGraph {
  Graph graph;
  std::vector<std::string> initializers;
};
// One for each training_info that has one. Errors as above.
absl::StatusOr<std::vector<InitializationGraph>> ImportInitializations(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_TRAINING_INFO_H_
