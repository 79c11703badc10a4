#include "placement/graph_views/absent_names.h"

#include <algorithm>
#include <set>
#include <string>

#include "graph/node_class.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

bool Fits(const std::string& pattern, const std::set<std::string>& names) {
  if (names.contains(pattern)) return true;
  if (pattern.find_first_of("*?") == std::string::npos) return false;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return MatchesPattern(pattern, name); });
}

}  // namespace

void DropAbsentNames(const Graph& graph, Plan& plan) {
  std::set<std::string> nodes;
  std::set<std::string> values;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!IsForward(node)) continue;
    nodes.insert(node.name);
    for (const ValueId output : node.outputs) {
      if (output.valid()) values.insert(graph.value(output).name);
    }
  }
  for (const Variable& variable : graph.variables()) values.insert(variable.name);
  std::erase_if(plan.stages, [&](const auto& entry) { return !Fits(entry.first, nodes); });
  std::erase_if(plan.tensor_shardings,
                [&](const auto& entry) { return !Fits(entry.first, values); });
}

}  // namespace weft
