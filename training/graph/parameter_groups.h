// ParameterGroups: learning rates and weight decays of parameters, by name.
#ifndef WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_
#define WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "training/graph/optimizer.h"

namespace weft {

// By pattern ('*' stands for any letters, '?' for one). The parameter's own name wins, then the
// pattern with the most letters that are no wildcards.
struct ParameterGroups {
  std::map<std::string, double> learning_rates;  // instead of the optimizer's
  std::map<std::string, double> weight_decays;   // instead of the optimizer's
  // False: parameters of rank 0 and 1 (biases, scales of normalizations) have no weight decay
  // unless a pattern gives them one.
  bool decay_vectors = true;
};

// InvalidArgument when a pattern fits none of the parameters, with the nearest name, or a number is
// out of range.
absl::Status CheckParameterGroups(const ParameterGroups& groups,
                                  const std::vector<std::string>& parameters);

// The optimizer of one parameter of this rank.
OptimizerSpec OptimizerOf(const std::string& parameter, int rank, const OptimizerSpec& optimizer,
                          const ParameterGroups& groups);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_PARAMETER_GROUPS_H_
