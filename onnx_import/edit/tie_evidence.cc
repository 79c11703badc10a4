#include "onnx_import/edit/tie_evidence.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/graph_signature.h"

namespace weft {
namespace {

// Parameters of one tensor that a group without a name is compared with.
constexpr size_t kMaxCompared = 64;

bool IsOfParameter(const UseGroup& group) {
  return group.role() != ParameterRole::kOther && !IsStatistic(group.role());
}

// "layers.#.fc": what copies of a layer have in common.
std::string WithoutNumbers(const std::string& name) {
  std::string shape;
  for (const char c : name) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      shape += c;
    } else if (shape.empty() || shape.back() != '#') {
      shape += '#';
    }
  }
  return shape;
}

// ("layers.0", "layers.1") of ("layers.0.fc", "layers.1.fc").
std::pair<std::string, std::string> WithoutSameEnd(std::string a, std::string b) {
  while (true) {
    const size_t dot_a = a.rfind('.');
    const size_t dot_b = b.rfind('.');
    if (dot_a == std::string::npos || dot_b == std::string::npos) break;
    if (a.substr(dot_a) != b.substr(dot_b)) break;
    a.resize(dot_a);
    b.resize(dot_b);
  }
  return {std::move(a), std::move(b)};
}

std::pair<std::string, std::string> Sorted(std::pair<std::string, std::string> names) {
  if (names.second < names.first) std::swap(names.first, names.second);
  return names;
}

}  // namespace

TieEvidence::TieEvidence(const TensorUses& uses, TensorValues& values, UseGroups& groups)
    : uses_(uses), values_(values), groups_(groups) {
  for (const SignatureEntry& entry : GraphSignatureOf(*uses.file().proto())) {
    if (entry.kind != ExportedKind::kParameter || entry.target.empty()) continue;
    order_.emplace(entry.target, static_cast<int>(order_.size()));
  }
  if (!order_.empty() || !uses.identities().empty()) Listen();
}

bool TieEvidence::IsParameterName(const std::string& name) const {
  if (!order_.empty()) return order_.contains(name);
  const bool is_number =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  return !is_number && !absl::StartsWith(name, "onnx::") && !absl::StartsWith(name, "val_") &&
         !absl::StartsWith(name, "/");
}

int TieEvidence::OrderOf(const std::string& name) const {
  const auto found = order_.find(name);
  return found == order_.end() ? -1 : found->second;
}

const std::vector<UseGroup>& TieEvidence::GroupsOf(int tensor) {
  const auto found = known_groups_.find(tensor);
  if (found != known_groups_.end()) return found->second;
  return known_groups_.emplace(tensor, groups_.Of(tensor)).first->second;
}

void TieEvidence::Listen() {
  for (int i = 0; i < static_cast<int>(uses_.tensors().size()); ++i) {
    const std::vector<TensorUse>& uses = uses_.uses(i);
    for (const TensorUse& use : uses) {
      if (use.role != ParameterRole::kWeight) continue;
      const std::string module = uses_.ModuleAt(use.reader);
      const bool counts = !module.empty() && !values_.AllEqual(uses_.tensors()[size_t(i)]);
      if (counts) weights_of_[module].insert(groups_.OriginalOf(i));
    }
    if (uses.size() < 2) continue;
    const std::vector<int> parameters = NamedParametersOf(i);
    if (!parameters.empty()) Record(i, parameters);
  }
}

std::vector<int> TieEvidence::NamedParametersOf(int tensor) {
  const FileTensor& held = uses_.tensors()[static_cast<size_t>(tensor)];
  if (!order_.empty()) return BySignature(tensor);
  if (uses_.identities().empty()) return {};
  const std::vector<UseGroup>& groups = GroupsOf(tensor);
  std::map<std::string, int> numbers;
  std::vector<int> parameters(groups.size(), -1);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!IsOfParameter(groups[i])) continue;
    const std::string& name = groups[i].uses.front().name;
    if (!IsParameterName(name)) continue;
    parameters[i] = numbers.emplace(name, static_cast<int>(numbers.size())).first->second;
  }
  // One name alone says nothing of others that the exporter made up.
  const bool tells = numbers.size() > 1 || (numbers.size() == 1 && IsParameterName(held.name));
  return tells ? parameters : std::vector<int>();
}

std::string TieEvidence::NameIn(const UseGroup& group, const std::string& name,
                                const std::string& suffix) {
  const std::string module = uses_.ModuleAt(group.uses.front().reader);
  const std::string begin = module.empty() ? "" : absl::StrCat(module, ".");
  const std::string role(LeafName(group.role()));
  for (const std::string& leaf : {suffix, role}) {
    if (leaf.empty()) continue;
    std::string own = absl::StrCat(begin, leaf);
    // A name that another tensor has is not this one's.
    if (OrderOf(own) >= 0 && (own == name || !uses_.IsTensor(own))) return own;
  }
  return "";
}

const TieEvidence::Lost& TieEvidence::LostOf(const std::string& module) {
  const auto [place, is_new] = lost_of_.emplace(module, Lost());
  Lost& lost = place->second;
  if (!is_new) return lost;
  const std::string begin = module.empty() ? "" : absl::StrCat(module, ".");
  for (auto at = order_.lower_bound(begin);
       at != order_.end() && absl::StartsWith(at->first, begin); ++at) {
    const bool is_inside = begin.empty() && absl::StrContains(at->first, ".");
    if (is_inside || uses_.IsTensor(at->first)) continue;
    if (lost.count == 0 || at->second < lost.first) lost.first = at->second;
    ++lost.count;
  }
  return lost;
}

void TieEvidence::LeaveOutDoubtful(const std::vector<UseGroup>& groups,
                                   std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (names[i].empty() || seen.insert(names[i]).second) continue;
    const std::string module = uses_.ModuleAt(groups[i].uses.front().reader);
    const bool is_inside = module.empty() && absl::StrContains(names[i], ".");
    const bool is_lost = !is_inside && !uses_.IsTensor(names[i]);
    if (LostOf(module).count > (is_lost ? 1 : 0)) names[i] = "";
  }
}

std::vector<int> TieEvidence::BySignature(int tensor) {
  const std::string& name = uses_.tensors()[static_cast<size_t>(tensor)].name;
  const int own = OrderOf(name);
  if (own < 0) return {};
  const std::vector<UseGroup>& groups = GroupsOf(tensor);
  std::string suffix;  // what is behind the module in its name
  for (const UseGroup& group : groups) {
    const std::string begin = absl::StrCat(uses_.ModuleAt(group.uses.front().reader), ".");
    const bool fits = begin.size() > 1 && absl::StartsWith(name, begin);
    if (fits && (suffix.empty() || name.size() - begin.size() < suffix.size())) {
      suffix = name.substr(begin.size());
    }
  }
  std::vector<std::string> names;
  for (const UseGroup& group : groups) {
    names.push_back(IsOfParameter(group) ? NameIn(group, name, suffix) : "");
  }
  LeaveOutDoubtful(groups, names);
  const std::string shape = WithoutNumbers(name);
  const bool all_equal = values_.AllEqual(uses_.tensors()[static_cast<size_t>(tensor)]);
  std::map<std::string, int> last_like;  // of the names behind its own
  for (const std::string& other : names) {
    if (OrderOf(other) <= own) continue;
    int& last = last_like[WithoutNumbers(other)];
    last = std::max(last, OrderOf(other));
  }
  std::vector<int> parameters(groups.size(), -1);
  for (size_t i = 0; i < groups.size(); ++i) {
    const int order = OrderOf(names[i]);
    if (order < 0) continue;
    parameters[i] = order;
    if (order >= own) continue;
    // Another name of this parameter, or of one that was merged with it: the last one like it.
    parameters[i] = own;
    const std::string like = WithoutNumbers(names[i]);
    if (like == shape) continue;
    const auto last = last_like.find(like);
    if (last != last_like.end()) parameters[i] = last->second;
    // A constant of equal elements, which the name that is there does not mean.
    if (parameters[i] == own && all_equal) parameters[i] = -1;
  }
  const bool knows =
      std::any_of(parameters.begin(), parameters.end(), [](int p) { return p >= 0; });
  return knows ? parameters : std::vector<int>();
}

void TieEvidence::Record(int tensor, const std::vector<int>& parameters) {
  const std::vector<UseGroup>& groups = GroupsOf(tensor);
  const bool differs = !values_.AllEqual(uses_.tensors()[static_cast<size_t>(tensor)]);
  const auto add = [&](const std::string& a, const std::string& b, bool one) {
    if (a.empty() || b.empty() || a == b) return;
    for (auto* const witnesses :
         {&of_modules_[Sorted({a, b})], &of_layers_[Sorted(WithoutSameEnd(a, b))]}) {
      ++(one ? witnesses->one : witnesses->merged)[differs ? 1 : 0];
    }
  };
  // Each module is compared with the first of its kind, and with the first that reads the same.
  std::map<std::string, size_t> first_of_kind;
  std::map<std::pair<std::string, int>, size_t> first_of_parameter;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (parameters[i] < 0) continue;
    const std::string module = uses_.ModuleAt(groups[i].uses.front().reader);
    const std::string kind = WithoutNumbers(module);
    const size_t first = first_of_kind.emplace(kind, i).first->second;
    const size_t same = first_of_parameter.emplace(std::pair(kind, parameters[i]), i).first->second;
    const auto module_of = [&](size_t group) {
      return uses_.ModuleAt(groups[group].uses.front().reader);
    };
    if (parameters[first] != parameters[i]) add(module_of(first), module, /*one=*/false);
    add(module_of(same), module, /*one=*/true);
  }
}

const std::set<int>& TieEvidence::WeightsOf(const std::string& layer) {
  const auto [place, is_new] = weights_of_layer_.emplace(layer, std::set<int>());
  std::set<int>& read = place->second;
  if (!is_new) return read;
  const std::string begin = absl::StrCat(layer, ".");
  const auto own = weights_of_.find(layer);
  if (own != weights_of_.end()) read.insert(own->second.begin(), own->second.end());
  for (auto at = weights_of_.lower_bound(begin);
       at != weights_of_.end() && absl::StartsWith(at->first, begin); ++at) {
    read.insert(at->second.begin(), at->second.end());
  }
  return read;
}

std::optional<bool> TieEvidence::Verdict(const std::map<Modules, Witnesses>& witnesses,
                                         const Modules& modules, bool are_layers) {
  const auto found = witnesses.find(modules);
  if (found == witnesses.end()) return std::nullopt;
  const Witnesses& said = found->second;
  for (const int differs : {1, 0}) {
    const bool one = said.one[differs] > 0;
    const bool merged = said.merged[differs] > 0;
    if (one == merged) {
      if (one) return std::nullopt;  // they contradict each other
      continue;
    }
    const bool is_weak = are_layers && merged && differs == 0;
    if (is_weak && WeightsOf(modules.first) != WeightsOf(modules.second)) return std::nullopt;
    return one;
  }
  return std::nullopt;
}

std::optional<bool> TieEvidence::AreOne(const std::string& module, const std::string& other) {
  if (module.empty() || other.empty()) return std::nullopt;
  if (module == other) return true;
  const std::optional<bool> verdict = Verdict(of_modules_, Sorted({module, other}), false);
  if (verdict.has_value()) return verdict;
  return Verdict(of_layers_, Sorted(WithoutSameEnd(module, other)), true);
}

bool TieEvidence::AreCopies(const std::string& module, const std::string& other) const {
  if (module.empty() || other.empty() || module == other) return false;
  const auto tell = [](const std::map<Modules, Witnesses>& witnesses, const Modules& modules) {
    const auto found = witnesses.find(modules);
    return found != witnesses.end() && found->second.merged[1] > 0 && found->second.one[1] == 0;
  };
  return tell(of_modules_, Sorted({module, other})) ||
         tell(of_layers_, Sorted(WithoutSameEnd(module, other)));
}

const std::set<std::string>& TieEvidence::WeightReadersOf(int tensor) {
  const auto [place, is_new] = weight_readers_.emplace(tensor, std::set<std::string>());
  if (is_new) place->second = uses_.WeightReadersOf(tensor);
  return place->second;
}

bool TieEvidence::IsDataOfProducts(int tensor) const {
  const std::vector<TensorUse>& uses = uses_.uses(tensor);
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [this](const TensorUse& use) {
    if (use.reader < 0 || use.port != 0) return false;
    const onnx::NodeProto& product = uses_.node(use.reader);
    return product.op_type() == "MatMul" && product.input_size() == 2 &&
           uses_.MovedTensorOf(product.input(1)) >= 0;
  });
}

std::vector<int> TieEvidence::ParametersOf(int tensor) {
  std::vector<int> parameters = NamedParametersOf(tensor);
  const bool is_named = IsParameterName(uses_.tensors()[static_cast<size_t>(tensor)].name);
  if (!parameters.empty() || is_named || IsDataOfProducts(tensor)) return parameters;
  const std::vector<UseGroup>& groups = GroupsOf(tensor);
  parameters.assign(groups.size(), -1);
  std::vector<std::string> firsts;  // the module of each parameter's first group, by its number
  bool knows = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!IsOfParameter(groups[i])) continue;
    const std::string module = uses_.ModuleAt(groups[i].uses.front().reader);
    bool is_another = false;
    for (size_t p = 0; p < firsts.size() && p < kMaxCompared && parameters[i] < 0; ++p) {
      const std::optional<bool> one = AreOne(firsts[p], module);
      if (!one.has_value()) continue;
      knows = true;
      is_another = is_another || !*one;
      if (*one) parameters[i] = static_cast<int>(p);
    }
    if (parameters[i] >= 0 || (!is_another && !firsts.empty())) continue;
    parameters[i] = static_cast<int>(firsts.size());
    firsts.push_back(module);
  }
  return knows ? parameters : std::vector<int>();
}

bool TieEvidence::IsOfAnother(const std::string& parameter, const std::string& module) {
  const int own = OrderOf(parameter);
  if (own < 0 || module.empty()) return false;
  if (absl::StartsWith(parameter, absl::StrCat(module, "."))) return false;
  const Lost& lost = LostOf(module);
  return lost.count > 0 && lost.first >= own;
}

}  // namespace weft
