#include "onnx_import/parameters/decision_kind.h"

namespace weft {

std::string_view KindText(DecisionKind kind, bool is_one) {
  switch (kind) {
    case DecisionKind::kTrains:
      return "";
    case DecisionKind::kFrozen:
      return "frozen";
    case DecisionKind::kUnused:
      return is_one ? "that does not reach the loss" : "that do not reach the loss";
    case DecisionKind::kTable:
      return is_one ? "table or mask" : "tables and masks";
    case DecisionKind::kBuffer:
      return is_one ? "buffer" : "buffers";
    case DecisionKind::kStatistic:
      return is_one ? "statistic" : "statistics";
    case DecisionKind::kConstant:
      return is_one ? "constant" : "constants";
    case DecisionKind::kUndecided:
      return is_one ? "single number" : "single numbers";
  }
  return "";
}

}  // namespace weft
