#include "onnx_import/parameters/parameter_names.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "onnx_import/codec/module_path.h"
#include "onnx_import/parameters/gradient_uses.h"

namespace weft {
namespace {

constexpr size_t kMaxOtherNames = 64;

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// What is before "_12" at the end; nothing without such an end.
std::optional<std::string_view> BeforeCounter(std::string_view name) {
  const size_t underscore = name.rfind('_');
  if (underscore == std::string_view::npos || !IsNumber(name.substr(underscore + 1))) {
    return std::nullopt;
  }
  return name.substr(0, underscore);
}

std::vector<std::string_view> PartsOf(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// What PyTorch calls what enters here, the likeliest first.
std::vector<std::string> RolesOf(const Node& node, int input) {
  const std::string port = PortName(node, input);
  if (IsOneOf(node, {"MatMul", "Einsum"})) return {"weight"};
  if (IsOneOf(node, {"Add", "Sub"})) return {"bias"};
  if (IsOneOf(node, {"Mul", "Div"})) return {"weight", "scale"};
  if (IsOneOf(node, {"LSTM", "GRU", "RNN"})) {
    return {port == "W" ? "weight_ih" : port == "R" ? "weight_hh" : port == "B" ? "bias" : port};
  }
  if (node.op.find("Normalization") != std::string::npos) {
    if (port == "scale" || port == "Scale") return {"weight", "scale"};
    if (port == "B" || port == "bias") return {"bias"};
    return {port == "input_mean" ? "running_mean" : port == "input_var" ? "running_var" : port};
  }
  if (IsOneOf(node, {"Gather", "GatherND", "PRelu"})) return {"weight"};
  if (IsOp(node, "Gemm")) return {input == 2 ? "bias" : "weight"};
  if (IsOneOf(node, {"Conv", "ConvTranspose"})) return {input == 2 ? "bias" : "weight"};
  return {port};
}

bool IsLearnablePort(const Node& node, int input) {
  const FormalParameter* const formal =
      node.schema == nullptr ? nullptr : node.schema->FormalInput(input);
  return formal != nullptr && formal->learnable;
}

void AddName(const std::string& name, const Variable& variable, std::vector<std::string>& names) {
  const bool is_known = name == variable.name ||
                        std::find(names.begin(), names.end(), name) != names.end() ||
                        names.size() >= kMaxOtherNames;
  if (!is_known) names.push_back(name);
}

// What values of graphs are called after, with a counter: the operators that make them.
constexpr std::string_view kMakers =
    "val Constant const constant unsqueeze expand slice add mul sub div transpose permute view "
    "reshape where cat concat cos sin arange full masked_fill index select clone to _to_copy zeros "
    "ones full_like zeros_like ones_like triu tril squeeze t pow exp repeat rsub neg lifted_tensor "
    "type_as stack outer tmp embedding";

const std::set<std::string_view>& Makers() {
  static const auto* const makers = [] {
    const std::vector<std::string_view> names = PartsOf(kMakers, ' ');
    return new std::set<std::string_view>(names.begin(), names.end());
  }();
  return *makers;
}

// The first of them have no counter.
const std::set<std::string_view>& MakersWithoutCounter() {
  static const auto* const makers = new std::set<std::string_view>{
      "unsqueeze", "expand", "masked_fill", "triu", "tril", "where", "arange", "permute", "full"};
  return *makers;
}

}  // namespace

bool IsMadeUpName(std::string_view name) {
  for (const std::string_view begin : std::vector<std::string_view>{
           "onnx::", "_folded", "folded_", "const_fold_opt", "_tensor_constant"}) {
    if (name.substr(0, begin.size()) == begin) return true;
  }
  // "/layer/Constant_1_output_0".
  const bool is_path = !name.empty() && name.front() == '/';
  if (is_path && name.find("_output_") != std::string_view::npos) return true;
  if (IsNumber(name) || MakersWithoutCounter().contains(name)) return true;
  const std::optional<std::string_view> maker = BeforeCounter(name);
  return maker.has_value() && Makers().contains(*maker);
}

std::string WithSlashes(std::string_view path) {
  std::string text;
  for (const std::string_view part : PartsOf(path, '.')) {
    if (!text.empty()) text += IsNumber(part) ? '.' : '/';
    text += part;
  }
  return text;
}

std::string ParameterNames::ModuleOf(const Node& node) const {
  for (const std::string* const name : {&node.name, &node.origin.forward_node}) {
    const auto found = metadata_.module_of_node.find(*name);
    if (found != metadata_.module_of_node.end()) return found->second;
  }
  return ModuleInNodeName(node.name);
}

std::set<std::string> ParameterNames::ModulesOf(const Variable& variable) const {
  std::set<std::string> modules;
  for (const ForwardWalk::Use& use : forward_.EffectiveUses(variable.value)) {
    const std::string module = ModuleOf(*use.node);
    if (!module.empty()) modules.insert(module);
  }
  return modules;
}

std::vector<std::string> ParameterNames::ByModule(const Variable& variable) const {
  std::vector<std::string> names;
  const auto shape = graph_.value(variable.value).type.shape.ToConcrete();
  const bool is_single = shape.has_value() && shape->num_elements() <= 1;
  for (const ForwardWalk::Use& use : forward_.EffectiveUses(variable.value)) {
    const std::string module = ModuleOf(*use.node);
    if (module.empty() || (is_single && !IsLearnablePort(*use.node, use.input))) continue;
    for (const std::string& role : RolesOf(*use.node, use.input)) {
      AddName(absl::StrCat(module, ".", role), variable, names);
    }
  }
  return names;
}

std::vector<std::string> ParameterNames::ByReader(const Variable& variable) const {
  std::vector<std::string> names;
  for (const ForwardWalk::Use& use : forward_.EffectiveUses(variable.value)) {
    AddName(absl::StrCat(use.node->name, ".", PortName(*use.node, use.input)), variable, names);
  }
  return names;
}

std::string ParameterNames::Telling(const Variable& variable,
                                    const std::vector<std::string>& modules,
                                    const std::map<std::string, int>& owners) const {
  if (!IsMadeUpName(variable.name)) return "";
  for (const std::string& name : modules) {
    if (owners.at(name) == 1) return name;
  }
  const std::vector<std::string> readers = ByReader(variable);
  return readers.empty() ? "" : readers.front();
}

void ParameterNames::Give(Graph& graph) const {
  std::map<std::string, int> owners;  // how many variables each name by module has
  std::vector<std::vector<std::string>> by_module;
  for (const Variable& variable : graph.variables()) {
    by_module.push_back(ByModule(variable));
    ++owners[variable.name];
    for (const std::string& name : by_module.back()) ++owners[name];
  }
  for (size_t i = 0; i < by_module.size(); ++i) {
    Variable& variable = graph.mutable_variables()[i];
    if (!variable.slot_of.empty()) continue;
    std::vector<std::string> names;
    for (const std::string& name : by_module[i]) {
      AddName(name, variable, names);
      AddName(WithSlashes(name), variable, names);
    }
    if (!IsMadeUpName(variable.name) && variable.name.find('/') == std::string::npos) {
      AddName(WithSlashes(variable.name), variable, names);
    }
    for (const std::string& name : ByReader(variable)) AddName(name, variable, names);
    variable.shown_name = Telling(variable, by_module[i], owners);
    variable.other_names = std::move(names);
  }
}

}  // namespace weft
