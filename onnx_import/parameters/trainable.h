// Which variables of an imported graph train.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/decision_kind.h"
#include "onnx_import/parameters/exporter_metadata.h"

namespace weft {

// What the user says about which parameters train.
struct TrainableOptions {
  // Names or patterns ('*' and '?') of variables; each of a variable's names counts
  // (parameter_names.h). Frozen ones do not train whatever else says so; `trainable` adds what the
  // rules leave out (one element, a table, a port that is never learnable).
  std::vector<std::string> freeze = {};
  std::vector<std::string> trainable = {};
  // Name of the value that is the loss (or that the loss is computed from); empty: any graph
  // output.
  std::string loss = "";
};

// Whether one parameter trains, and why.
struct ParameterDecision {
  std::string name;
  std::string shown;  // ShownName (variable_names.h)
  ValueType type;
  bool trainable = false;
  DecisionKind kind = DecisionKind::kTrains;
  // "reaches the loss at Conv.W (node 'conv1')", "frozen by 'fc*'", "has one element at ...", ...
  std::string reason;
};

// Gives the variables that ImportModel made their other names, sets Variable::trainable, and says
// why: the first of the rules (rules.h) that has something to say. By default a float tensor trains
// when it reaches the loss, along inputs through which gradients flow, and is none of: a single
// number that enters at an ordinary port, a mask, a table, a buffer. A tensor that holds an
// infinity, a NaN or its type's lowest value never trains.
//
// What can never be a parameter becomes a constant, so that it can be folded; frozen variables and
// running statistics stay variables. Variables with a `slot_of` are left alone. One decision per
// variable, in the graph's order; none trainable is no error here. InvalidArgument for a pattern
// that matches no variable, a name that means several, an unknown loss, and where `trainable`
// names, not by a pattern, a tensor that does not train all the same: a frozen one, one that the
// loss does not depend on, one that decides a shape, one that holds an infinity.
absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(ImportedModel& model,
                                                             const TrainableOptions& options = {});
// The same without the file, or with what the exporter says given.
absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(Graph& graph,
                                                             const TrainableOptions& options = {},
                                                             const ExporterMetadata& metadata = {});

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_
