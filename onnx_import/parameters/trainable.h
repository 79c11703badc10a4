// Which variables of an imported graph train.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// What the user says about which parameters train.
struct TrainableOptions {
  // Glob patterns ('*' and '?') of variable names. Frozen ones do not train whatever else says so;
  // `trainable` adds what the rules leave out (one element, a name that begins with "const.", a
  // port that is never learnable).
  std::vector<std::string> freeze = {};
  std::vector<std::string> trainable = {};
  // Name of the value that is the loss (or that the loss is computed from); empty: any graph
  // output.
  std::string loss = "";
};

// Whether one parameter trains, and why.
struct ParameterDecision {
  std::string name;
  ValueType type;
  bool trainable = false;
  // "reaches the loss at Conv.W (node 'conv1')", "frozen by 'fc*'", "its name begins with const.",
  // ...
  std::string reason;
};

// Sets Variable::trainable for the variables that ImportModel made, and says why. A float tensor
// trains when it reaches the loss, along inputs through which gradients flow, and enters either at
// a port that its operator's schema calls learnable or as an ordinary operand with more than one
// element. Operators without a schema are taken to let gradients through. A tensor that holds an
// infinity, a NaN or its type's lowest value (a causal mask) never trains.
//
// What can never be a parameter (one element, a mask, "const." names, unused) becomes a constant,
// so that it can be folded; frozen variables and running statistics stay variables. Variables with
// a `slot_of` are left alone. One decision per variable, in the graph's order; none trainable is no
// error here. InvalidArgument for a pattern that matches no variable, for an unknown loss, and
// where `trainable` names a tensor that never trains.
absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(Graph& graph,
                                                             const TrainableOptions& options = {});

// Whether all of `name` matches: '*' stands for any characters, '?' for one.
bool MatchesGlob(std::string_view pattern, std::string_view name);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_TRAINABLE_H_
