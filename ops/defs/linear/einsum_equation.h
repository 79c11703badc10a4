// EinsumEquation: what the equation of Einsum says about operands of known ranks.
#ifndef WEFT_OPS_DEFS_LINEAR_EINSUM_EQUATION_H_
#define WEFT_OPS_DEFS_LINEAR_EINSUM_EQUATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// One label per axis. The axes that an ellipsis stands for have labels of their own, aligned at the
// right. Value type.
struct EinsumEquation {
  int label_count = 0;
  std::vector<std::vector<int>> operands;  // the labels of each operand's axes
  std::vector<int> output;                 // distinct; each is in some operand
  // The terms as text, without spaces, the output's written out if it was implicit.
  std::vector<std::string> operand_terms;
  std::string output_term;

  // InvalidArgument for an equation that is malformed or does not fit the ranks.
  static absl::StatusOr<EinsumEquation> Parse(const std::string& equation,
                                              const std::vector<int>& ranks);
};

}  // namespace weft

#endif  // WEFT_OPS_DEFS_LINEAR_EINSUM_EQUATION_H_
