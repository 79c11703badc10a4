// Rewrites of what exporters take apart: the operators that the model's author meant.
#ifndef WEFT_OPS_REWRITES_REWRITES_H_
#define WEFT_OPS_REWRITES_REWRITES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// What a graph is for: some operators are faster in a forward pass alone.
enum class RewriteUse : uint8_t {
  kTraining,
  kForward,
  // A training step on devices where a library computes plain and causal attention, and its
  // gradient, without a matrix of scores.
  kTrainingWithAttention,
};

// How many places each rewrite changed, by its name; those that changed none have no entry. A place
// is where a pattern matched; of "sequences" a node that read a sequence, of "needless_cast" a
// Cast.
using RewriteCounts = std::map<std::string, int>;

// Resolves sequences (sequences.h), then replaces each place that a pattern matches by the operator
// that it is, if nothing else reads what lies between and shapes and types fit. The result computes
// the same numbers but for rounding, and its gradients are the same but for rounding. What becomes
// an operator has the name, origin and phase of the last node of its pattern. Infers types before
// and after. Bodies of If, Loop and Scan stay as they are.
absl::StatusOr<RewriteCounts> RewritePatterns(Graph& graph, RewriteUse use);

// The names of all rewrites for a use, each once, in the order in which they are looked for.
std::vector<std::string> RewriteNames(RewriteUse use);

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_REWRITES_H_
