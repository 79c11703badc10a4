// The names by which people call a variable in flags, and by which messages call it.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_VARIABLE_NAMES_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_VARIABLE_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// Its own name, then the others (Variable::other_names).
std::vector<std::string> NamesOf(const Variable& variable);

// Whether one of its names is `pattern`, or fits it ('*' any characters, '?' one).
bool IsCalled(const Variable& variable, std::string_view pattern);

// "layer.3.query.weight (onnx::MatMul_374)": the name that tells most, with that of the file in
// brackets where they differ.
std::string ShownName(const Variable& variable);

// Which of `variables` a flag means: the one of this very name; else those that a pattern fits;
// else the one that has it among its other names. None is no error. InvalidArgument naming the
// candidates where a name without wildcards is another name of several. Borrows; in the order
// given.
absl::StatusOr<std::vector<const Variable*>> VariablesCalled(
    std::string_view pattern, const std::vector<const Variable*>& variables);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_VARIABLE_NAMES_H_
