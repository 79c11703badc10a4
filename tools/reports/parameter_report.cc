#include "tools/reports/parameter_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/console/console.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

constexpr size_t kNamedUndecided = 3;

int64_t ElementsOfType(const ValueType& type) {
  const auto shape = type.shape.ToConcrete();
  return shape.has_value() ? shape->num_elements() : 0;
}

// "; undecided: model.scale, norm.gain and 2 more, which --trainable trains": what a module may
// have as a parameter or as a buffer.
std::string UndecidedText(const std::vector<ParameterDecision>& decisions) {
  std::vector<std::string> names;
  for (const ParameterDecision& decision : decisions) {
    if (decision.kind == DecisionKind::kUndecided) names.push_back(Printable(decision.name));
  }
  if (names.empty()) return "";
  const size_t more = names.size() - std::min(names.size(), kNamedUndecided);
  names.resize(names.size() - more);
  return absl::StrCat("; undecided: ", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      ", which --trainable trains");
}

}  // namespace

std::string ParameterSummary(const std::vector<ParameterDecision>& decisions) {
  double elements = 0;
  int trained = 0;
  std::map<DecisionKind, int> others;
  for (const ParameterDecision& decision : decisions) {
    if (!decision.trainable) {
      ++others[decision.kind];
      continue;
    }
    ++trained;
    elements += static_cast<double>(ElementsOfType(decision.type));
  }
  const std::string tensors = decisions.size() == 1 ? " tensor (" : " tensors (";
  const std::string numbers = absl::StrCat(tensors, Quantity(elements), " numbers)");
  if (others.empty()) {
    return absl::StrCat(trained == 1 ? "trains its " : "trains all ", trained, numbers);
  }
  std::string text = absl::StrCat("trains ", trained, " of ", decisions.size(), numbers);
  const char* separator = "; not: ";
  for (const auto& [kind, count] : others) {
    absl::StrAppend(&text, separator, count, " ", std::string(KindText(kind, count == 1)));
    separator = ", ";
  }
  absl::StrAppend(&text, UndecidedText(decisions));
  return absl::StrCat(text, "; `graph_runner inspect --parameters` gives each reason");
}

std::string ParameterTable(const std::vector<ParameterDecision>& decisions) {
  std::string text;
  for (const ParameterDecision& decision : decisions) {
    absl::StrAppend(
        &text, absl::StrFormat("%-40s %-20s %-6s %s\n", Printable(decision.shown),
                               decision.type.ToString(), decision.trainable ? "trains" : "fixed",
                               Printable(decision.reason)));
  }
  return text;
}

nlohmann::ordered_json ParametersJson(const std::vector<ParameterDecision>& decisions) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ParameterDecision& decision : decisions) {
    rows.push_back({{"name", decision.name},
                    {"shown", decision.shown},
                    {"type", decision.type.ToString()},
                    {"elements", ElementsOfType(decision.type)},
                    {"trains", decision.trainable},
                    {"reason", decision.reason}});
  }
  return rows;
}

}  // namespace weft
