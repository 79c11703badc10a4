#include "onnx_import/node_order.h"

#include <functional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"

namespace weft {
namespace {

using NodeProtos = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

void AppendOuterNames(const onnx::GraphProto& graph, std::vector<absl::string_view>& names) {
  absl::flat_hash_set<absl::string_view> local;
  for (const onnx::ValueInfoProto& input : graph.input()) local.insert(input.name());
  for (const onnx::TensorProto& tensor : graph.initializer()) local.insert(tensor.name());
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) {
    local.insert(tensor.values().name());
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) local.insert(output);
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const absl::string_view name : NamesUsedBy(node)) {
      if (!local.contains(name)) names.push_back(name);
    }
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    if (!local.contains(output.name())) names.push_back(output.name());
  }
}

// The edges between the nodes of one graph.
class Dependencies {
 public:
  Dependencies(const NodeProtos& nodes) : nodes_(nodes), producers_(nodes.size()) {}

  absl::Status Build(const std::function<bool(const std::string&)>& is_defined);
  // Whether the nodes stand in a good order already.
  bool sorted() const { return sorted_; }
  absl::StatusOr<std::vector<int>> Sort() const;

 private:
  absl::Status CycleError(const std::vector<int>& blockers) const;

  const NodeProtos& nodes_;
  std::vector<std::vector<int>> producers_;  // by node: the nodes it needs
  bool sorted_ = true;
};

absl::Status Dependencies::Build(const std::function<bool(const std::string&)>& is_defined) {
  absl::flat_hash_map<absl::string_view, int> producer_of;
  for (int i = 0; i < nodes_.size(); ++i) {
    for (const std::string& output : nodes_[i].output()) {
      if (!output.empty()) producer_of.emplace(output, i);
    }
  }
  for (int i = 0; i < nodes_.size(); ++i) {
    for (const absl::string_view name : NamesUsedBy(nodes_[i])) {
      const auto found = producer_of.find(name);
      if (found != producer_of.end()) {
        producers_[i].push_back(found->second);
        if (found->second >= i) sorted_ = false;
      } else if (!is_defined(std::string(name))) {
        return absl::InvalidArgumentError(absl::StrCat(
            NodeLabel(nodes_[i], i), ": its input ", Quoted({name.data(), name.size()}),
            " is no graph input, no initializer and no output of any node; the model is "
            "incomplete, "
            "export it again"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Dependencies::CycleError(const std::vector<int>& blockers) const {
  int at = 0;
  while (blockers[at] == 0) ++at;
  // Walking back over blocked producers must come to a node twice: that one is on a cycle.
  std::vector<int> seen(nodes_.size(), -1);
  std::vector<int> path;
  while (seen[at] < 0) {
    seen[at] = static_cast<int>(path.size());
    path.push_back(at);
    for (const int producer : producers_[at]) {
      if (blockers[producer] == 0) continue;
      at = producer;
      break;
    }
  }
  std::vector<std::string> labels;
  for (size_t i = seen[at]; i < path.size() && labels.size() < 4; ++i) {
    labels.push_back(NodeLabel(nodes_[path[i]], path[i]));
  }
  const size_t length = path.size() - seen[at];
  return absl::InvalidArgumentError(absl::StrCat(
      labels[0], " needs its own output: a cycle of ", length, " node", length == 1 ? "" : "s",
      " (", absl::StrJoin(labels, " needs "), labels.size() < length ? ", ..." : "",
      "); an ONNX graph has no cycles, use Loop or Scan"));
}

absl::StatusOr<std::vector<int>> Dependencies::Sort() const {
  std::vector<int> blockers(nodes_.size(), 0);
  std::vector<std::vector<int>> users(nodes_.size());
  for (int i = 0; i < nodes_.size(); ++i) {
    blockers[i] = static_cast<int>(producers_[i].size());
    for (const int producer : producers_[i]) users[producer].push_back(i);
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int i = 0; i < nodes_.size(); ++i) {
    if (blockers[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int user : users[node]) {
      if (--blockers[user] == 0) ready.push(user);
    }
  }
  if (static_cast<int>(order.size()) < nodes_.size()) return CycleError(blockers);
  return order;
}

}  // namespace

std::vector<absl::string_view> NamesUsedBy(const onnx::NodeProto& node) {
  std::vector<absl::string_view> names;
  for (const std::string& input : node.input()) {
    if (!input.empty()) names.push_back(input);
  }
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) AppendOuterNames(attribute.g(), names);
    for (const onnx::GraphProto& graph : attribute.graphs()) AppendOuterNames(graph, names);
  }
  return names;
}

absl::StatusOr<std::vector<int>> OrderNodes(
    const NodeProtos& nodes, const std::function<bool(const std::string&)>& is_defined) {
  Dependencies dependencies(nodes);
  absl::Status status = dependencies.Build(is_defined);
  if (!status.ok()) return status;
  if (!dependencies.sorted()) return dependencies.Sort();
  std::vector<int> order(nodes.size());
  for (int i = 0; i < nodes.size(); ++i) order[i] = i;
  return order;
}

}  // namespace weft
