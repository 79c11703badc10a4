// Why no gradient flows through an operator, for the table of operators.
#ifndef WEFT_TOOLS_COMMANDS_GRADIENT_REASONS_H_
#define WEFT_TOOLS_COMMANDS_GRADIENT_REASONS_H_

#include <string>
#include <string_view>

#include "graph/op_schema.h"

namespace weft {

// In a few words, why the operator ("Shape", "ai.onnx.ml::LabelEncoder") has no gradient by its
// nature, or why it has no rule; empty for operators that have one, and those that nobody knows (of
// a library of custom operators).
std::string_view ReasonForNoGradient(const std::string& full_name);

// "rule", "expanded", "none: random", "missing: ...".
std::string GradientText(const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_TOOLS_COMMANDS_GRADIENT_REASONS_H_
