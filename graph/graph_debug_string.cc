// Graph::DebugString: the one printer of graphs, for tests, dumps and bug reports.
#include <algorithm>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {
namespace {

constexpr size_t kShownElements = 16;

std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(float value) { return absl::StrFormat("%g", value); }
std::string Text(const std::string& value) {
  constexpr size_t kShownBytes = 64;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kShownBytes)),
                      value.size() > kShownBytes ? "...\"" : "\"");
}
std::string Text(const Tensor& value) { return value.ToString(); }
std::string Text(const std::shared_ptr<Graph>& value) {
  return value == nullptr ? "graph()" : absl::StrCat("graph(", value->num_nodes(), " nodes)");
}
template <typename T>
std::string Text(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < std::min(values.size(), kShownElements); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", Text(values[i]));
  }
  absl::StrAppend(&text, values.size() > kShownElements ? ",...]" : "]");
  return text;
}

std::string ValueName(const Graph& graph, ValueId id) {
  if (!id.valid()) return "_";
  if (id.value >= graph.value_capacity() || !graph.is_live(id)) {
    return absl::StrCat("<removed value ", id.value, ">");
  }
  return absl::StrCat("%", graph.value(id).name);
}

std::string OutputsText(const Graph& graph, const Node& node) {
  return absl::StrJoin(node.outputs, ", ", [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, ValueName(graph, id));
    if (id.valid() && id.value < graph.value_capacity() && graph.is_live(id)) {
      absl::StrAppend(out, ": ", graph.value(id).type.ToString());
    }
  });
}

std::string NodeLine(const Graph& graph, const Node& node) {
  std::string line = OutputsText(graph, node);
  if (!line.empty()) line += " = ";
  absl::StrAppend(&line, node.domain.empty() ? "" : node.domain,
                  node.domain.empty() ? "" : "::", node.op, "(");
  absl::StrAppend(&line, absl::StrJoin(node.inputs, ", ", [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, ValueName(graph, id));
  }));
  line += ")";
  const auto& items = node.attributes.items();
  if (!items.empty()) {
    absl::StrAppend(
        &line, " {",
        absl::StrJoin(items, ", ",
                      [](std::string* out, const auto& item) {
                        absl::StrAppend(
                            out, item.first, "=",
                            std::visit([](const auto& value) { return Text(value); }, item.second));
                      }),
        "}");
  }
  absl::StrAppend(&line, "  # ", node.name);
  std::vector<std::string> tags;
  if (node.phase != Phase::kForward) tags.emplace_back(PhaseName(node.phase));
  if (node.stage.valid()) tags.push_back(absl::StrCat("stage ", node.stage.value));
  if (!tags.empty()) absl::StrAppend(&line, " [", absl::StrJoin(tags, ", "), "]");
  return line + "\n";
}

std::string VariableLine(const Graph& graph, const Variable& variable) {
  std::string line = absl::StrCat("variable ", ValueName(graph, variable.value), ": ",
                                  graph.value(variable.value).type.ToString());
  if (variable.trainable) line += " trainable";
  if (!variable.slot_of.empty()) absl::StrAppend(&line, " slot of ", variable.slot_of);
  return line + "\n";
}

}  // namespace

std::string Graph::DebugString() const {
  std::string text;
  for (const ValueId id : inputs_) {
    absl::StrAppend(&text, "input %", value(id).name, ": ", value(id).type.ToString(),
                    input_role(id) == InputRole::kStep ? " per step\n" : "\n");
  }
  for (const Variable& variable : variables_) text += VariableLine(*this, variable);
  for (const ValueId id : value_ids()) {
    if (value(id).source != ValueSource::kConstant) continue;
    absl::StrAppend(&text, "constant %", value(id).name, " = ", value(id).constant.ToString(),
                    "\n");
  }
  const absl::StatusOr<std::vector<NodeId>> order = TopologicalOrder();
  for (const NodeId id : order.ok() ? *order : node_ids()) text += NodeLine(*this, node(id));
  for (const Variable& variable : variables_) {
    if (!variable.update.valid()) continue;
    absl::StrAppend(&text, "update ", ValueName(*this, variable.value), " <- ",
                    ValueName(*this, variable.update), "\n");
  }
  for (const ValueId id : outputs_) {
    absl::StrAppend(&text, "output ", ValueName(*this, id), "\n");
  }
  return text;
}

}  // namespace weft
