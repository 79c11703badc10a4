// What a tensor of a model is taken for: a parameter, or why none.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_DECISION_KIND_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_DECISION_KIND_H_

#include <cstdint>
#include <string_view>

namespace weft {

// What a tensor is taken for.
enum class DecisionKind : uint8_t {
  kTrains,
  kFrozen,     // by the user
  kUnused,     // the loss does not depend on it
  kTable,      // masks and tables
  kBuffer,     // what modules keep beside their parameters
  kStatistic,  // at ports that are never learnable: running means, bounds
  kConstant,   // single numbers, shapes
  kUndecided,  // a single number that is called as parameters and buffers of a module are
};
// "tables and masks", or with one of them "table or mask"; "" for kTrains.
std::string_view KindText(DecisionKind kind, bool is_one);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_DECISION_KIND_H_
