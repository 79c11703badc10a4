#include "onnx_import/edit/merged_norms.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "onnx_import/codec/graph_signature.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/module_path.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Normalizations of one value; no module has so many.
constexpr size_t kMaxMerged = 16;

// What is before the last dot; "" without one.
std::string ParentOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string BeginOf(const std::string& parent) {
  return parent.empty() ? "" : absl::StrCat(parent, ".");
}

// A module of the signature with parameters of its own.
struct SignatureModule {
  std::set<std::string> leaves;  // their last names
  bool is_lost = true;           // none of them is in the file, or will be
};

class NormSplitter {
 public:
  NormSplitter(const TensorUses& uses, TensorValues& values, CopyBudget& budget, FileEdit& edit,
               TieReport& report)
      : uses_(uses), values_(values), budget_(budget), edit_(edit), report_(report) {}

  absl::Status Run() {
    ReadModules();
    for (int i = 0; i < uses_.num_nodes() && !lost_in_.empty(); ++i) {
      const onnx::NodeProto& node = uses_.node(i);
      const bool is_norm =
          NormalizedDomain(node.domain()).empty() &&
          (node.op_type() == "LayerNormalization" || node.op_type() == "RMSNormalization");
      if (is_norm && node.input_size() > 1 && node.output_size() == 1) {
        WEFT_RETURN_IF_ERROR(Consider(i));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Parameter {
    int input = 0;
    int tensor = 0;
    std::string leaf;
  };
  // What reads a normalization in one child of its parent.
  using Readers = std::vector<std::pair<int, int>>;  // node, input

  void ReadModules() {
    std::set<std::string> untied;
    for (const UntiedTensor& one : report_.untied) untied.insert(one.name);
    for (const SignatureEntry& entry : GraphSignatureOf(*uses_.file().proto())) {
      const std::string owner = ParentOf(entry.target);
      if (entry.kind != ExportedKind::kParameter || owner.empty()) continue;
      places_.emplace(entry.target, static_cast<int>(places_.size()));
      SignatureModule& module = modules_[owner];
      module.leaves.insert(entry.target.substr(owner.size() + 1));
      if (uses_.IsTaken(entry.target) || untied.contains(entry.target)) module.is_lost = false;
    }
    std::set<std::string> of_nodes;
    for (int i = 0; i < uses_.num_nodes() && !modules_.empty(); ++i) {
      of_nodes.insert(uses_.ModuleAt(i));
    }
    for (const auto& [path, module] : modules_) {
      if (!module.is_lost || of_nodes.contains(path)) continue;
      const auto part = of_nodes.lower_bound(BeginOf(path));
      const bool has_part = part != of_nodes.end() && absl::StartsWith(*part, BeginOf(path));
      if (!has_part) lost_in_[ParentOf(path)].insert(path);
    }
  }

  absl::Status Consider(int index) {
    const std::string module = uses_.ModuleAt(index);
    const std::string parent = ParentOf(module);
    const auto lost = lost_in_.find(parent);
    const auto own = modules_.find(module);
    if (module.empty() || lost == lost_in_.end() || own == modules_.end()) return absl::OkStatus();
    if (lost->second.size() > kMaxMerged) return absl::OkStatus();
    std::vector<std::pair<int, std::string>> norms = {{FirstIn(module), module}};
    for (const std::string& other : lost->second) {
      if (other == module || modules_[other].leaves != own->second.leaves) continue;
      norms.emplace_back(FirstIn(other), other);
    }
    const std::vector<Parameter> parameters = ParametersOf(index, module);
    const bool fits = norms.size() > 1 && parameters.size() == own->second.leaves.size();
    if (!fits) return absl::OkStatus();
    std::vector<std::pair<int, Readers>> children = ChildrenThatRead(index, parent, norms);
    if (children.size() != norms.size()) return absl::OkStatus();
    std::sort(norms.begin(), norms.end());
    std::sort(children.begin(), children.end());
    for (const auto& [first, norm] : norms) lost->second.erase(norm);
    return Split(index, module, norms, parameters, children);
  }

  // The place of the first parameter of a module and its parts; -1: none.
  int FirstIn(const std::string& module) {
    const auto [known, is_new] = first_in_.emplace(module, -1);
    if (!is_new) return known->second;
    const std::string begin = BeginOf(module);
    for (auto at = places_.lower_bound(begin);
         at != places_.end() && absl::StartsWith(at->first, begin); ++at) {
      if (known->second < 0 || at->second < known->second) known->second = at->second;
    }
    return known->second;
  }

  std::string NameAt(int node, int input) const {
    const auto renamed = edit_.renamed.find({node, input});
    return renamed != edit_.renamed.end() ? renamed->second : uses_.node(node).input(input);
  }

  // Those that the node reads; none where one is not the module's, or its elements differ.
  std::vector<Parameter> ParametersOf(int index, const std::string& module) {
    std::vector<Parameter> parameters;
    const onnx::NodeProto& node = uses_.node(index);
    for (int input = 1; input < node.input_size(); ++input) {
      if (node.input(input).empty()) continue;
      const int tensor = uses_.TensorOf(node.input(input));
      const std::string name = NameAt(index, input);
      const bool is_own = tensor >= 0 && ParentOf(name) == module;
      if (!is_own) return {};
      const FileTensor& held = uses_.tensors()[static_cast<size_t>(tensor)];
      if (held.initializer < 0 || !values_.AllEqual(held)) return {};
      parameters.push_back({input, tensor, name.substr(module.size() + 1)});
    }
    return parameters;
  }

  // By the place of the child's first parameter; none where a reader is in no such child.
  std::vector<std::pair<int, Readers>> ChildrenThatRead(
      int index, const std::string& parent, const std::vector<std::pair<int, std::string>>& norms) {
    const std::string& output = uses_.node(index).output(0);
    if (uses_.IsGraphOutput(output) || uses_.IsCaptured(output)) return {};
    const std::string begin = BeginOf(parent);
    std::map<std::string, Readers> readers;
    for (const auto& [node, input] : uses_.ReadersOf(output)) {
      const std::string module = uses_.ModuleAt(node);
      if (module.empty() || !absl::StartsWith(module, begin)) return {};
      if (edit_.replaced_nodes.contains(node)) return {};
      const size_t end = module.find('.', begin.size());
      readers[module.substr(0, end)].emplace_back(node, input);
    }
    std::vector<std::pair<int, Readers>> children;
    for (auto& [child, own] : readers) {
      const bool is_norm =
          std::any_of(norms.begin(), norms.end(),
                      [&child = child](const auto& norm) { return norm.second == child; });
      if (is_norm || FirstIn(child) < 0) return {};
      children.emplace_back(FirstIn(child), std::move(own));
    }
    return children;
  }

  absl::Status Split(int index, const std::string& module,
                     const std::vector<std::pair<int, std::string>>& norms,
                     const std::vector<Parameter>& parameters,
                     const std::vector<std::pair<int, Readers>>& children) {
    onnx::NodeProto kept = uses_.node(index);
    for (int input = 0; input < kept.input_size(); ++input) {
      kept.set_input(input, NameAt(index, input));
    }
    std::vector<std::string> nodes = {kept.SerializeAsString()};
    for (size_t i = 0; i < norms.size(); ++i) {
      const std::string& norm = norms[i].second;
      if (norm == module) continue;
      onnx::NodeProto twin = kept;
      const std::string suffix = absl::StrCat("/", norm.substr(BeginOf(ParentOf(norm)).size()));
      if (!twin.name().empty()) twin.set_name(absl::StrCat(twin.name(), suffix));
      twin.set_output(0, NewValue(absl::StrCat(twin.output(0), suffix)));
      for (onnx::StringStringEntryProto& entry : *twin.mutable_metadata_props()) {
        if (entry.key() != kNameScopesKey) continue;
        const std::string quoted = absl::StrCat("'", module, "'");
        entry.set_value(
            absl::StrReplaceAll(entry.value(), {{quoted, absl::StrCat("'", norm, "'")}}));
      }
      for (const Parameter& parameter : parameters) {
        const FileTensor& held = uses_.tensors()[static_cast<size_t>(parameter.tensor)];
        const std::string name = absl::StrCat(norm, ".", parameter.leaf);
        absl::Status status = budget_.Take(held.name, held.encoded);
        if (status.ok()) {
          status = budget_.TakeNames(held.name, held.encoded, name.size() + twin.ByteSizeLong());
        }
        if (!status.ok()) return Annotate(status, uses_.file().Label());
        edit_.added_initializers.push_back({name, held.encoded});
        report_.untied.push_back(
            {name, held.name, absl::StrCat(twin.output(0), " (", twin.op_type(), ")")});
        twin.set_input(parameter.input, name);
      }
      for (const auto& [node, input] : children[i].second) {
        edit_.renamed[{node, input}] = twin.output(0);
      }
      nodes.push_back(twin.SerializeAsString());
    }
    edit_.replaced_nodes[index] = std::move(nodes);
    return absl::OkStatus();
  }

  std::string NewValue(std::string name) {
    while (uses_.IsTaken(name) || !made_.insert(name).second) name += "_";
    return name;
  }

  const TensorUses& uses_;
  TensorValues& values_;
  CopyBudget& budget_;
  FileEdit& edit_;
  TieReport& report_;
  std::map<std::string, int> places_;                     // of the signature's parameters
  std::map<std::string, SignatureModule> modules_;        // by path
  std::map<std::string, std::set<std::string>> lost_in_;  // by parent
  std::map<std::string, int> first_in_;                   // FirstIn
  std::set<std::string> made_;
};

}  // namespace

absl::Status SplitNorms(const TensorUses& uses, TensorValues& values, CopyBudget& budget,
                        FileEdit& edit, TieReport& report) {
  return NormSplitter(uses, values, budget, edit, report).Run();
}

}  // namespace weft
