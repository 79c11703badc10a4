#include "onnx_import/edit/use_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// How far a weight may be from the node that has none: nodes of one search, inputs and outputs of
// one search, and those of all searches of a file.
constexpr size_t kMaxVisited = 256;
constexpr int64_t kMaxLooked = 4096;
constexpr int64_t kMaxLookedInAll = int64_t{1} << 26;
// No operator has a weight at a later input.
constexpr int kMaxPorts = 64;

int PortsOf(const onnx::NodeProto& node) { return std::min(node.input_size(), kMaxPorts); }

bool IsElementwise(const onnx::NodeProto& node) {
  return node.op_type() == "Add" || node.op_type() == "Mul" || node.op_type() == "BiasGelu";
}

}  // namespace

std::vector<UseGroup> UseGroups::Of(int tensor) {
  std::map<std::string, size_t> places;
  std::vector<UseGroup> groups;
  std::vector<Key> keys;
  for (const TensorUse& use : uses_.uses(tensor)) {
    Key key = KeyOf(use);
    const auto [place, is_new] = places.emplace(key.text, groups.size());
    if (is_new) {
      groups.push_back({{}, key.is_guess});
      keys.push_back(std::move(key));
    }
    groups[place->second].uses.push_back(use);
  }
  std::vector<UseGroup> split;
  for (size_t i = 0; i < groups.size(); ++i) {
    std::vector<UseGroup> parts = {std::move(groups[i])};
    if (keys[i].is_behind) SplitSameInputs(parts);
    for (UseGroup& part : parts) split.push_back(std::move(part));
  }
  std::stable_sort(split.begin(), split.end(), [](const UseGroup& a, const UseGroup& b) {
    const TensorUse& first = a.uses.front();
    const TensorUse& second = b.uses.front();
    if ((first.node < 0) != (second.node < 0)) return second.node < 0;
    return std::tie(first.node, first.input) < std::tie(second.node, second.input);
  });
  return split;
}

int UseGroups::PartnerOf(const TensorUse& use) { return PartnersAt(use).first; }

UseGroups::Key UseGroups::KeyOf(const TensorUse& use) {
  if (use.reader < 0 || use.role == ParameterRole::kOther) {
    return {absl::StrCat("other ", use.name)};
  }
  const onnx::NodeProto& reader = uses_.node(use.reader);
  std::string key = absl::StrCat("role ", static_cast<int>(use.role), " ");
  if (use.role == ParameterRole::kWeight) absl::StrAppend(&key, reader.op_type(), " ");
  absl::StrAppend(&key, "name ", use.name, " ");
  // TorchScript's exporter gives each parameter its name, where it merges any: that decides.
  if (!uses_.identities().empty() && !HasNameScopes(reader)) return {key};
  const std::string partners = PartnersAt(use).text;
  const std::string module = uses_.ModuleAt(use.reader);
  if (!module.empty()) return {absl::StrCat(key, "module ", module, " with ", partners)};
  if (!partners.empty()) return {absl::StrCat(key, reader.op_type(), " with ", partners)};
  std::string nearest = NearestWeight(use.reader, use.port, /*upstream=*/true);
  if (!nearest.empty()) {
    return {absl::StrCat(key, "behind ", nearest), /*is_guess=*/true, /*is_behind=*/true};
  }
  nearest = NearestWeight(use.reader, use.port, /*upstream=*/false);
  if (!nearest.empty()) return {absl::StrCat(key, "before ", nearest), /*is_guess=*/true};
  return {absl::StrCat(key, "node ", use.reader), /*is_guess=*/true};
}

UseGroups::Partners UseGroups::PartnersAt(const TensorUse& use) {
  if (use.reader < 0) return {};
  Partners partners = PartnersOf(use.reader, use.tensor);
  const onnx::NodeProto& reader = uses_.node(use.reader);
  if (partners.first >= 0 || !IsElementwise(reader)) return partners;
  for (int i = 0; i < reader.input_size() && i < 2; ++i) {
    if (i == use.port) continue;
    int producer = uses_.ProducerOf(reader.input(i));
    for (int moves = 0; producer >= 0 && moves < 4; ++moves) {
      const onnx::NodeProto& node = uses_.node(producer);
      if (!OnlyMovesElements(node) || node.input_size() == 0) break;
      producer = uses_.ProducerOf(node.input(0));
    }
    if (producer >= 0) partners = PartnersOf(producer, use.tensor);
  }
  return partners;
}

UseGroups::Partners UseGroups::PartnersOf(int node, int skipped_tensor) {
  const onnx::NodeProto& proto = uses_.node(node);
  Partners partners;
  for (int i = 0; i < PortsOf(proto); ++i) {
    const int tensor = uses_.MovedTensorOf(proto.input(i));
    if (tensor < 0 || tensor == skipped_tensor) continue;
    const FileTensor& partner = uses_.tensors()[static_cast<size_t>(tensor)];
    const bool is_parameter = RoleAt(proto, i, partner.shape) != ParameterRole::kOther;
    if (!is_parameter || partner.shape.num_elements() < 2 || values_.AllEqual(partner)) continue;
    if (partners.first < 0) partners.first = tensor;
    absl::StrAppend(&partners.text, partners.text.empty() ? "" : " ", proto.op_type(), ".", i, "=",
                    OriginalOf(tensor));
  }
  return partners;
}

std::string UseGroups::WeightAt(int node) {
  const onnx::NodeProto& proto = uses_.node(node);
  for (int i = 0; i < PortsOf(proto); ++i) {
    const int tensor = uses_.MovedTensorOf(proto.input(i));
    if (tensor < 0) continue;
    const FileTensor& weight = uses_.tensors()[static_cast<size_t>(tensor)];
    if (RoleAt(proto, i, weight.shape) != ParameterRole::kWeight) continue;
    if (!values_.AllEqual(weight)) {
      return absl::StrCat(proto.op_type(), ".", i, "=", OriginalOf(tensor));
    }
  }
  return "";
}

std::string UseGroups::NearestWeight(int node, int skipped_input, bool upstream) {
  std::set<int> seen = {node};
  std::vector<int> front = {node};
  int64_t looked_at = 0;
  const auto may_go_on = [&] {
    return seen.size() < kMaxVisited && looked_at < kMaxLooked && looked_at_ < kMaxLookedInAll;
  };
  const auto count = [&](int64_t ports) {
    looked_at += ports;
    looked_at_ += ports;
  };
  for (int distance = 1; !front.empty() && may_go_on(); ++distance) {
    std::vector<int> next;
    const auto visit = [&](int neighbour) {
      count(1);
      if (neighbour >= 0 && seen.insert(neighbour).second) next.push_back(neighbour);
    };
    for (const int at : front) {
      const onnx::NodeProto& proto = uses_.node(at);
      for (int i = 0; upstream && i < proto.input_size() && may_go_on(); ++i) {
        if (at != node || i != skipped_input) visit(uses_.ProducerOf(proto.input(i)));
      }
      for (int i = 0; !upstream && i < proto.output_size() && may_go_on(); ++i) {
        count(1);
        for (const auto& reader : uses_.ReadersOf(proto.output(i))) {
          if (!may_go_on()) break;
          visit(reader.first);
        }
      }
    }
    for (const int at : next) {
      count(PortsOf(uses_.node(at)));
      const std::string weight = WeightAt(at);
      if (!weight.empty()) return absl::StrCat(weight, " after ", distance, " nodes");
    }
    front = std::move(next);
  }
  return "";
}

void UseGroups::SplitSameInputs(std::vector<UseGroup>& groups) {
  std::map<std::string, int> count;
  const auto data_of = [&](const TensorUse& use) {
    const onnx::NodeProto& reader = uses_.node(use.reader);
    return reader.input(use.port == 0 && reader.input_size() > 1 ? 1 : 0);
  };
  bool same = false;
  for (const TensorUse& use : groups.front().uses) same = same || ++count[data_of(use)] > 1;
  if (!same) return;
  std::map<std::string, UseGroup> parts;
  for (const TensorUse& use : groups.front().uses) {
    const std::string after = NearestWeight(use.reader, use.port, /*upstream=*/false);
    UseGroup& part = parts[after.empty() ? absl::StrCat("node ", use.reader) : after];
    part.is_guess = groups.front().is_guess;
    part.uses.push_back(use);
  }
  groups.clear();
  for (auto& [after, part] : parts) groups.push_back(std::move(part));
}

}  // namespace weft
