#include "placement/graph_views/control_flow_bodies.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

constexpr const char* kReason =
    "; which ranks run a body, and how often, depends on data, so that no rank may wait for "
    "another "
    "in it: the node runs whole on every rank";

// A node of a body, and where it lies.
struct InnerNode {
  const Graph* body;
  const Node* node;
  std::string place;  // "body 'then_branch' of node 'if' (If)"
};

void CollectInner(const Node& outer, std::vector<InnerNode>& inner) {
  for (const auto& [name, attribute] : outer.attributes.items()) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (body == nullptr || *body == nullptr) continue;
    const std::string place = absl::StrCat("the body '", name, "' of ", DescribeNode(outer));
    for (const NodeId id : (*body)->node_ids()) {
      inner.push_back({body->get(), &(*body)->node(id), place});
      CollectInner((*body)->node(id), inner);
    }
  }
}

absl::Status CheckNoCommunication(const std::vector<InnerNode>& inner) {
  for (const InnerNode& found : inner) {
    const OpSchema* schema = found.node->schema;
    if (schema == nullptr || schema->op_class() != OpClass::kCommunication) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(DescribeNode(*found.node), " stands in ", found.place, kReason));
  }
  return absl::OkStatus();
}

bool Matches(const std::string& pattern, const std::string& name) {
  return pattern == name || MatchesPattern(pattern, name);
}

// The first inner node with `pattern` among the names that `names_of` gives.
template <typename NamesOf>
const InnerNode* FindInner(const std::vector<InnerNode>& inner, const std::string& pattern,
                           std::string& name, NamesOf names_of) {
  for (const InnerNode& found : inner) {
    for (const std::string& candidate : names_of(found)) {
      if (!Matches(pattern, candidate)) continue;
      name = candidate;
      return &found;
    }
  }
  return nullptr;
}

std::vector<std::string> OutputNames(const InnerNode& inner) {
  std::vector<std::string> names;
  for (const ValueId output : inner.node->outputs) {
    if (output.valid()) names.push_back(inner.body->value(output).name);
  }
  return names;
}

}  // namespace

bool HasBody(const Node& node) {
  const auto& items = node.attributes.items();
  return std::any_of(items.begin(), items.end(), [](const auto& item) {
    return std::holds_alternative<std::shared_ptr<Graph>>(item.second);
  });
}

absl::Status CheckBodies(const Graph& graph, const Plan& plan) {
  std::vector<InnerNode> inner;
  std::set<std::string> outside;  // names that mean something there
  for (const NodeId id : graph.node_ids()) {
    CollectInner(graph.node(id), inner);
    outside.insert(graph.node(id).name);
  }
  if (inner.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckNoCommunication(inner));
  for (const ValueId id : graph.value_ids()) outside.insert(graph.value(id).name);
  const auto means_outside = [&](const std::string& pattern) {
    return std::any_of(outside.begin(), outside.end(),
                       [&](const std::string& name) { return Matches(pattern, name); });
  };
  std::string name;
  for (const auto& [pattern, sharding] : plan.tensor_shardings) {
    if (sharding.is_replicated() || means_outside(pattern)) continue;
    const InnerNode* found = FindInner(inner, pattern, name, OutputNames);
    if (found == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan shards '", pattern, "' as ", sharding.ToString(), ", but '", name,
        "' is made in ", found->place, ": a conversion would have to stand there", kReason));
  }
  for (const auto& [pattern, stage] : plan.stages) {
    if (means_outside(pattern)) continue;
    const InnerNode* found = FindInner(inner, pattern, name, [](const InnerNode& node) {
      return std::vector<std::string>{node.node->name};
    });
    if (found == nullptr) continue;
    const std::vector<std::string> values = OutputNames(*found);
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan puts '", pattern, "' on stage ", stage, ", but node '", name, "' is in ",
        found->place, ": a Send of '", values.empty() ? "" : values.front(),
        "' would have to stand there", kReason, "; give the outer node a stage"));
  }
  return absl::OkStatus();
}

}  // namespace weft
