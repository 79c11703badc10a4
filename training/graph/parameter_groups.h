// ParameterGroups: learning rates and weight decays of parameters, by name.
#ifndef WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_
#define WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "training/graph/optimizer.h"

namespace weft {

// By pattern ('*' stands for any letters, '?' for one). The parameter's own name wins, then another
// of its names (onnx_import/parameters/variable_names.h), then the pattern with the most letters
// that are no wildcards and that fits any of them.
struct ParameterGroups {
  std::map<std::string, double> learning_rates;  // instead of the optimizer's
  std::map<std::string, double> weight_decays;   // instead of the optimizer's
  // False: parameters of rank 0 and 1 (biases, scales of normalizations) have no weight decay
  // unless a pattern gives them one.
  bool decay_vectors = true;
};

// InvalidArgument when a pattern fits none of the parameters, with the nearest name, when a name is
// another name of several, or a number is out of range.
absl::Status CheckParameterGroups(const ParameterGroups& groups,
                                  const std::vector<const Variable*>& parameters);

// The optimizer of one parameter of this rank.
OptimizerSpec OptimizerOf(const Variable& parameter, int rank, const OptimizerSpec& optimizer,
                          const ParameterGroups& groups);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_
