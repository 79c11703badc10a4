#include "training/adapters/module_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr char kWeightEnd[] = ".weight";
// So many candidates are told.
constexpr size_t kMaxCandidates = 5;

std::string WithDots(const std::string& name) {
  std::string path(absl::StripPrefix(name, "/"));
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

// A weight that is kept in codes is called after them.
std::vector<std::string> OtherNamesOf(const Graph& graph, const LoraAdapter& adapter) {
  const std::string suffix = adapter.quantized.has_value() ? "/codes" : "";
  const Variable* const variable =
      graph.FindVariable(adapter.quantized.has_value() ? adapter.quantized->codes : adapter.weight);
  std::vector<std::string> names;
  if (variable == nullptr) return names;
  for (const std::string& name : variable->other_names) {
    names.emplace_back(absl::StripSuffix(name, suffix));
  }
  return names;
}

}  // namespace

std::string ModulePath(const std::string& name) {
  return std::string(absl::StripSuffix(WithDots(name), kWeightEnd));
}

ModuleNames::ModuleNames(const Graph& graph) {
  for (const Variable& variable : graph.variables()) {
    by_own_name_.emplace(ModulePath(variable.name), &variable);
    for (const std::string& name : variable.other_names) {
      if (!absl::EndsWith(WithDots(name), kWeightEnd)) continue;
      by_other_name_[ModulePath(name)].insert(&variable);
    }
  }
}

absl::StatusOr<const Variable*> ModuleNames::Find(const std::string& module,
                                                  const std::string& file) const {
  const auto own = by_own_name_.find(module);
  if (own != by_own_name_.end()) return own->second;
  const auto other = by_other_name_.find(module);
  const std::string begin = absl::StrCat("\"", absl::Utf8SafeCEscape(file), "\": module '",
                                         absl::Utf8SafeCEscape(module), "' ");
  if (other == by_other_name_.end()) {
    std::vector<std::string> known;
    for (const auto& [name, variable] : by_own_name_) known.push_back(name);
    for (const auto& [name, variables] : by_other_name_) known.push_back(name);
    return absl::InvalidArgumentError(absl::StrCat(begin, "is no module of the model",
                                                   DidYouMean(module, known),
                                                   "; graph_runner inspect --parameters lists "
                                                   "its weights"));
  }
  if (other->second.size() == 1) return *other->second.begin();
  std::vector<std::string> names;
  for (const Variable* const variable : other->second) names.push_back(variable->name);
  std::sort(names.begin(), names.end());
  names.resize(std::min(names.size(), kMaxCandidates));
  return absl::InvalidArgumentError(
      absl::StrCat(begin, "is a name of several weights: ", absl::StrJoin(names, ", ")));
}

std::map<std::string, std::string> ModulesOfAdapters(const Graph& graph,
                                                     const std::vector<LoraAdapter>& adapters) {
  std::map<std::string, std::string> modules;
  std::map<std::string, int> owners;
  for (const LoraAdapter& adapter : adapters) {
    std::string& module = modules[adapter.weight];
    module = ModulePath(adapter.weight);
    if (!absl::EndsWith(WithDots(adapter.weight), kWeightEnd)) {
      for (const std::string& name : OtherNamesOf(graph, adapter)) {
        if (!absl::EndsWith(WithDots(name), kWeightEnd)) continue;
        module = ModulePath(name);
        break;
      }
    }
    ++owners[module];
  }
  for (auto& [weight, module] : modules) {
    if (owners.at(module) > 1) module = ModulePath(weight);
  }
  return modules;
}

}  // namespace weft
