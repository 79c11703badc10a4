#include "ops/kernels/cpu/ml/tree_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::Status CheckSize(const std::string& name, size_t size, size_t wanted) {
  if (size == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", name, " has ", size, " elements, expected ", wanted));
}

// Where the nodes of the older form go: inner nodes and leaves apart, in order.
struct Places {
  Places(const std::vector<std::string>& modes, const std::vector<int64_t>& trees,
         const std::vector<int64_t>& ids)
      : leaf_of(modes.size(), -1) {
    int64_t leaves = 0;
    for (size_t i = 0; i < modes.size(); ++i) {
      const bool is_leaf = modes[i] == "LEAF";
      const int64_t at = is_leaf ? -1 - leaves : static_cast<int64_t>(nodes.size());
      if (is_leaf) {
        leaf_of[i] = leaves++;
      } else {
        nodes.push_back(static_cast<int64_t>(i));
      }
      of[{trees[i], ids[i]}] = at;
      roots.emplace(trees[i], at);
    }
  }

  std::map<std::pair<int64_t, int64_t>, int64_t> of;  // (tree, node id) -> node, or -1 - leaf
  std::map<int64_t, int64_t> roots;                   // the first node of each tree
  std::vector<int64_t> nodes;                         // positions of inner nodes
  std::vector<int64_t> leaf_of;                       // by position: number of the leaf, or -1
};

}  // namespace

absl::StatusOr<std::vector<double>> NumbersOf(const Attributes& attributes,
                                              const std::string& name) {
  for (const std::string& full : {name, absl::StrCat(name, "_as_tensor")}) {
    const Attribute* attribute = attributes.Find(full);
    if (attribute == nullptr) continue;
    if (const auto* floats = std::get_if<std::vector<float>>(attribute)) {
      if (!floats->empty()) return std::vector<double>(floats->begin(), floats->end());
      continue;
    }
    if (const auto* tensor = std::get_if<Tensor>(attribute)) return ToDoubles(*tensor);
  }
  return std::vector<double>();
}

int64_t TreeModel::Next(const Node& node, double x) const {
  bool yes = false;
  switch (node.mode) {
    case Mode::kLeq:
      yes = x <= node.split;
      break;
    case Mode::kLt:
      yes = x < node.split;
      break;
    case Mode::kGte:
      yes = x >= node.split;
      break;
    case Mode::kGt:
      yes = x > node.split;
      break;
    case Mode::kEq:
      yes = x == node.split;
      break;
    case Mode::kNeq:
      yes = x != node.split && !std::isnan(x);
      break;
    case Mode::kMember:
      yes = std::binary_search(sets_[node.set].begin(), sets_[node.set].end(), x);
      break;
  }
  if (std::isnan(x)) yes = node.missing_is_true;
  return yes ? node.if_true : node.if_false;
}

absl::StatusOr<TreeModel> TreeModel::FromEnsemble(const Attributes& attributes) {
  TreeModel model;
  WEFT_ASSIGN_OR_RETURN(const auto modes, NumbersOf(attributes, "nodes_modes"));
  WEFT_ASSIGN_OR_RETURN(const auto splits, NumbersOf(attributes, "nodes_splits"));
  WEFT_ASSIGN_OR_RETURN(const auto weights, NumbersOf(attributes, "leaf_weights"));
  const size_t count = modes.size();
  const auto ints = [&](const char* name) { return attributes.Ints(name); };
  const auto features = ints("nodes_featureids");
  const auto missing = ints("nodes_missing_value_tracks_true");
  const std::pair<const char*, const char*> branches[] = {
      {"nodes_truenodeids", "nodes_trueleafs"}, {"nodes_falsenodeids", "nodes_falseleafs"}};
  WEFT_RETURN_IF_ERROR(CheckSize("nodes_splits", splits.size(), count));
  WEFT_RETURN_IF_ERROR(CheckSize("nodes_featureids", features.size(), count));
  for (const auto& [ids, leafs] : branches) {
    WEFT_RETURN_IF_ERROR(CheckSize(ids, ints(ids).size(), count));
    WEFT_RETURN_IF_ERROR(CheckSize(leafs, ints(leafs).size(), count));
  }
  const auto targets = ints("leaf_targetids");
  WEFT_RETURN_IF_ERROR(CheckSize("leaf_weights", weights.size(), targets.size()));
  for (size_t i = 0; i < targets.size(); ++i) {
    model.votes_.push_back({targets[i], weights[i]});
    model.leaves_.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1});
  }
  const auto true_ids = ints("nodes_truenodeids"), true_leafs = ints("nodes_trueleafs");
  const auto false_ids = ints("nodes_falsenodeids"), false_leafs = ints("nodes_falseleafs");
  for (size_t i = 0; i < count; ++i) {
    if (!(modes[i] >= 0 && modes[i] <= 6)) {
      return absl::InvalidArgumentError(
          absl::StrCat("nodes_modes[", i, "] is ", modes[i], ", expected 0 to 6"));
    }
    Node node;
    node.mode = static_cast<Mode>(static_cast<int>(modes[i]));
    node.missing_is_true = i < missing.size() && missing[i] != 0;
    node.feature = features[i];
    node.split = splits[i];
    node.if_true = true_leafs[i] != 0 ? -1 - true_ids[i] : true_ids[i];
    node.if_false = false_leafs[i] != 0 ? -1 - false_ids[i] : false_ids[i];
    const bool negative = true_ids[i] < 0 || false_ids[i] < 0;
    if (negative) {
      return absl::InvalidArgumentError(absl::StrCat("a successor of node ", i, " is negative"));
    }
    model.nodes_.push_back(node);
  }
  model.roots_ = ints("tree_roots");
  WEFT_RETURN_IF_ERROR(model.ReadSets(attributes));
  WEFT_RETURN_IF_ERROR(model.Check());
  return model;
}

// The sets follow each other in the order of the nodes that use them, with NaN after each.
absl::Status TreeModel::ReadSets(const Attributes& attributes) {
  WEFT_ASSIGN_OR_RETURN(const auto members, NumbersOf(attributes, "membership_values"));
  std::vector<double> set;
  for (const double member : members) {
    if (!std::isnan(member)) {
      set.push_back(member);
      continue;
    }
    std::sort(set.begin(), set.end());
    sets_.push_back(std::move(set));
    set.clear();
  }
  int64_t used = 0;
  for (Node& node : nodes_) {
    if (node.mode == Mode::kMember) node.set = used++;
  }
  if (used <= static_cast<int64_t>(sets_.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("membership_values holds ", sets_.size(),
                                                 " sets, expected one for each of ", used,
                                                 " BRANCH_MEMBER nodes, each ended by NaN"));
}

absl::StatusOr<TreeModel> TreeModel::FromNodes(const Attributes& attributes,
                                               const std::string& votes) {
  TreeModel model;
  const std::vector<std::string> modes = attributes.Strings("nodes_modes");
  const size_t count = modes.size();
  const auto ints = [&](const char* name) { return attributes.Ints(name); };
  WEFT_ASSIGN_OR_RETURN(const auto splits, NumbersOf(attributes, "nodes_values"));
  WEFT_RETURN_IF_ERROR(CheckSize("nodes_values", splits.size(), count));
  for (const char* name : {"nodes_treeids", "nodes_nodeids", "nodes_featureids",
                           "nodes_truenodeids", "nodes_falsenodeids"}) {
    WEFT_RETURN_IF_ERROR(CheckSize(name, ints(name).size(), count));
  }
  const auto trees = ints("nodes_treeids"), ids = ints("nodes_nodeids");
  const auto features = ints("nodes_featureids");
  const auto true_ids = ints("nodes_truenodeids"), false_ids = ints("nodes_falsenodeids");
  const auto missing = ints("nodes_missing_value_tracks_true");
  const Places places(modes, trees, ids);
  static const std::map<std::string, Mode> kModes = {
      {"BRANCH_LEQ", Mode::kLeq}, {"BRANCH_LT", Mode::kLt}, {"BRANCH_GTE", Mode::kGte},
      {"BRANCH_GT", Mode::kGt},   {"BRANCH_EQ", Mode::kEq}, {"BRANCH_NEQ", Mode::kNeq}};
  for (const int64_t i : places.nodes) {
    const auto mode = kModes.find(modes[i]);
    const auto if_true = places.of.find({trees[i], true_ids[i]});
    const auto if_false = places.of.find({trees[i], false_ids[i]});
    if (mode == kModes.end() || if_true == places.of.end() || if_false == places.of.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "node ", ids[i], " of tree ", trees[i], " has mode '", modes[i], "' and successors ",
          true_ids[i], " and ", false_ids[i], "; the mode or one of these nodes is unknown"));
    }
    Node node;
    node.mode = mode->second;
    node.missing_is_true = i < static_cast<int64_t>(missing.size()) && missing[i] != 0;
    node.feature = features[i];
    node.split = splits[i];
    node.if_true = if_true->second;
    node.if_false = if_false->second;
    model.nodes_.push_back(node);
  }
  for (const auto& [tree, root] : places.roots) model.roots_.push_back(root);
  WEFT_RETURN_IF_ERROR(model.ReadVotes(attributes, votes, places.leaf_of));
  WEFT_RETURN_IF_ERROR(model.Check());
  return model;
}

absl::Status TreeModel::ReadVotes(const Attributes& attributes, const std::string& votes,
                                  const std::vector<int64_t>& leaf_of) {
  const auto trees = attributes.Ints("nodes_treeids"), ids = attributes.Ints("nodes_nodeids");
  const auto vote_trees = attributes.Ints(votes + "_treeids");
  const auto vote_nodes = attributes.Ints(votes + "_nodeids");
  const auto targets = attributes.Ints(votes + "_ids");
  WEFT_ASSIGN_OR_RETURN(const auto weights, NumbersOf(attributes, votes + "_weights"));
  WEFT_RETURN_IF_ERROR(CheckSize(votes + "_treeids", vote_trees.size(), targets.size()));
  WEFT_RETURN_IF_ERROR(CheckSize(votes + "_nodeids", vote_nodes.size(), targets.size()));
  WEFT_RETURN_IF_ERROR(CheckSize(votes + "_weights", weights.size(), targets.size()));
  std::multimap<std::pair<int64_t, int64_t>, size_t> of_node;
  for (size_t v = 0; v < targets.size(); ++v) of_node.insert({{vote_trees[v], vote_nodes[v]}, v});
  for (size_t i = 0; i < ids.size(); ++i) {
    if (leaf_of[i] < 0) continue;
    const int64_t begin = static_cast<int64_t>(votes_.size());
    const auto own = of_node.equal_range({trees[i], ids[i]});
    for (auto vote = own.first; vote != own.second; ++vote) {
      votes_.push_back({targets[vote->second], weights[vote->second]});
    }
    leaves_.push_back({begin, static_cast<int64_t>(votes_.size())});
  }
  return absl::OkStatus();
}

absl::Status TreeModel::Check() {
  const int64_t nodes = static_cast<int64_t>(nodes_.size());
  const int64_t leaves = static_cast<int64_t>(leaves_.size());
  const auto inside = [&](int64_t at) { return at < nodes && -1 - at < leaves; };
  for (int64_t i = 0; i < nodes; ++i) {
    const Node& node = nodes_[i];
    if (!inside(node.if_true) || !inside(node.if_false) || node.feature < 0 ||
        node.feature > kMaxDim) {
      return absl::InvalidArgumentError(absl::StrCat(
          "node ", i, " of ", nodes, " has feature ", node.feature,
          " and successors of which one is unknown; the trees have ", leaves, " leaves"));
    }
    features_ = std::max(features_, node.feature + 1);
  }
  for (const int64_t root : roots_) {
    if (inside(root)) continue;
    return absl::InvalidArgumentError(absl::StrCat("tree root ", root, " is unknown"));
  }
  for (const Vote& vote : votes_) {
    if (vote.target < 0 || vote.target > kMaxDim) {
      return absl::InvalidArgumentError(absl::StrCat("a leaf votes for target ", vote.target));
    }
    targets_ = std::max(targets_, vote.target + 1);
    has_negative_weight_ |= vote.weight < 0;
    only_target_ = &vote == &votes_[0] || only_target_ == vote.target ? vote.target : -2;
  }
  if (only_target_ == -2) only_target_ = -1;
  // Nodes without an unfinished predecessor are taken away until none is left, or a cycle is.
  std::vector<int> predecessors(nodes_.size(), 0);
  std::vector<int64_t> ready;
  for (const Node& node : nodes_) {
    if (node.if_true >= 0) ++predecessors[node.if_true];
    if (node.if_false >= 0) ++predecessors[node.if_false];
  }
  for (int64_t i = 0; i < nodes; ++i) {
    if (predecessors[i] == 0) ready.push_back(i);
  }
  int64_t taken = 0;
  for (; !ready.empty(); ++taken) {
    const Node& node = nodes_[ready.back()];
    ready.pop_back();
    if (node.if_true >= 0 && --predecessors[node.if_true] == 0) ready.push_back(node.if_true);
    if (node.if_false >= 0 && --predecessors[node.if_false] == 0) ready.push_back(node.if_false);
  }
  if (taken == nodes) return absl::OkStatus();
  return absl::InvalidArgumentError("the nodes of a tree form a cycle");
}

}  // namespace weft::cpu
