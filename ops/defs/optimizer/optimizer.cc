#include "ops/defs/optimizer/optimizer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kNewPrefix[] = "new_";

std::map<std::string, OptimizerKind>& RegisteredOptimizers() {
  static auto* const kinds = new std::map<std::string, OptimizerKind>;
  return *kinds;
}

// The first difference in what two kinds say of one option; empty when there is none.
std::string Difference(const OptimizerKind& kind, const OptimizerKind& other) {
  for (const OptimizerOption& option : kind.options) {
    const OptimizerOption* const same = other.FindOption(option.name);
    const bool agrees =
        same == nullptr || (same->help == option.help && same->low == option.low &&
                            same->high == option.high && same->is_switch == option.is_switch);
    if (!agrees) return option.name;
  }
  return "";
}

}  // namespace

std::string OptimizerOption::AttributeName() const {
  return attribute.value_or(absl::StrReplaceAll(name, {{"-", "_"}}));
}

OptimizerOption Momentum(double usual) {
  return {.name = "momentum", .usual = usual, .help = "decay of the velocity"};
}

OptimizerOption Beta1(double usual) {
  return {.name = "beta1", .usual = usual, .help = "decay of the running mean of gradients"};
}

OptimizerOption Beta2(double usual) {
  return {.name = "beta2", .usual = usual, .help = "decay of the second running mean"};
}

OptimizerOption Epsilon(double usual) {
  return {.name = "epsilon",
          .usual = usual,
          .help = "added to divisors to keep them from zero",
          .high = 1e6};
}

const OptimizerOption* OptimizerKind::FindOption(const std::string& option) const {
  const auto found =
      std::find_if(options.begin(), options.end(),
                   [&option](const OptimizerOption& own) { return own.name == option; });
  return found == options.end() ? nullptr : &*found;
}

double OptimizerKind::ValueOf(const std::string& option,
                              const std::map<std::string, double>& values) const {
  const OptimizerOption* const own = FindOption(option);
  if (own == nullptr) return 0;
  const auto set = values.find(option);
  return set == values.end() ? own->usual : set->second;
}

bool OptimizerKind::ReadsStep(const std::map<std::string, double>& values) const {
  return needs_step ||
         std::any_of(options.begin(), options.end(), [&](const OptimizerOption& option) {
           return option.needs_step && ValueOf(option.name, values) > 0;
         });
}

const OptimizerKind* FindOptimizer(const std::string& name) {
  const auto found = RegisteredOptimizers().find(name);
  return found == RegisteredOptimizers().end() ? nullptr : &found->second;
}

std::vector<const OptimizerKind*> AllOptimizers() {
  std::vector<const OptimizerKind*> all;
  for (const auto& [name, kind] : RegisteredOptimizers()) all.push_back(&kind);
  return all;
}

ValueId AddSlotVariable(Graph& graph, const std::string& variable, const std::string& slot,
                        Tensor initial) {
  const ValueType type = graph.value(graph.FindVariable(variable)->value).type;
  const ValueId value = graph.AddVariable(absl::StrCat(variable, "/", slot), type,
                                          std::move(initial), /*trainable=*/false);
  graph.mutable_variables().back().slot_of = variable;
  return value;
}

void SetSlotUpdate(Graph& graph, ValueId slot, ValueId updated) {
  const std::string name = graph.VariableOf(slot)->name;
  graph.SetVariableUpdate(name, updated);
}

ValueId UpdateSite::weight() const {
  return builder_.graph().FindVariable(request_.variable)->value;
}

float UpdateSite::Option(const std::string& name) const {
  return static_cast<float>(kind_.ValueOf(name, request_.options));
}

Attributes UpdateSite::AllAttributes() const {
  Attributes attributes = kind_.attributes;
  attributes.Set("weight_decay", weight_decay());
  for (const OptimizerOption& option : kind_.options) {
    const float value = Option(option.name);
    const bool decides = option.needs_step || std::any_of(kind_.slots.begin(), kind_.slots.end(),
                                                          [&](const OptimizerSlot& slot) {
                                                            return slot.only_with == option.name;
                                                          });
    if (option.AttributeName().empty() || (decides && value == 0)) continue;
    attributes.Set(option.AttributeName(), value);
  }
  return attributes;
}

// A tensor of the parameter's type, all of one value; none for zero.
absl::StatusOr<Tensor> UpdateSite::InitialOf(const OptimizerSlot& slot) const {
  const double value = kind_.ValueOf(slot.starts_at, request_.options);
  if (value == 0) return Tensor();
  const ValueType& type = builder_.graph().value(weight()).type;
  const std::optional<Shape> shape = type.shape.ToConcrete();
  if (!shape.has_value()) {
    return absl::InternalError(absl::StrCat("a weight has the shape ", type.shape.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type.dtype, *shape));
  if (type.dtype == DType::kFloat64) {
    std::ranges::fill(tensor.mutable_data<double>(), value);
  } else {
    std::ranges::fill(tensor.mutable_data<float>(), static_cast<float>(value));
  }
  return tensor;
}

ValueId UpdateSite::SlotOf(const std::string& name) {
  const auto known = slots_.find(name);
  if (known != slots_.end()) return known->second;
  const auto slot = std::find_if(kind_.slots.begin(), kind_.slots.end(),
                                 [&name](const OptimizerSlot& own) { return own.name == name; });
  if (slot == kind_.slots.end()) return kNoValue;
  if (!slot->only_with.empty() && !(Option(slot->only_with) > 0)) return kNoValue;
  absl::StatusOr<Tensor> initial = InitialOf(*slot);
  status_.Update(initial.status());
  if (!initial.ok()) return kNoValue;
  return slots_[name] =
             AddSlotVariable(builder_.graph(), request_.variable, name, *std::move(initial));
}

ValueId UpdateSite::Operand(const std::string& name) {
  if (name == "w") return weight();
  if (name == "g") return request_.gradient;
  if (name == "learning_rate") return request_.learning_rate;
  if (name == "step") return kind_.ReadsStep(request_.options) ? request_.step : kNoValue;
  return SlotOf(name);
}

ValueId UpdateSite::AddOp(const std::string& op, Attributes attributes,
                          const std::map<std::string, ValueId>& operands) {
  const OpSchema* const schema = OpRegistry::Global().Find(kWeftDomain, op);
  if (schema == nullptr) {
    status_.Update(absl::InternalError(absl::StrCat("no op ", op, " is declared")));
    return kNoValue;
  }
  std::vector<ValueId> inputs;
  std::map<std::string, ValueId> by_name;
  for (const FormalParameter& input : schema->inputs()) {
    const auto given = operands.find(input.name);
    inputs.push_back(given == operands.end() ? Operand(input.name) : given->second);
    by_name[input.name] = inputs.back();
  }
  // The state of each output; an output of state that the parameter does not have is left out.
  std::vector<ValueId> states;
  std::vector<bool> wanted;
  for (const FormalParameter& output : schema->outputs()) {
    absl::string_view name = output.name;
    const bool is_state = absl::ConsumePrefix(&name, kNewPrefix) && name != "w";
    states.push_back(is_state ? by_name[std::string(name)] : kNoValue);
    wanted.push_back(!is_state || states.back().valid());
  }
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  while (!wanted.empty() && !wanted.back()) wanted.pop_back();
  const std::vector<ValueId> made = builder_.Ops(std::string(kWeftDomain), op, std::move(inputs),
                                                 std::move(attributes), std::move(wanted));
  if (!builder_.status().ok()) return kNoValue;
  for (size_t i = 0; i < made.size(); ++i) {
    if (states[i].valid()) SetSlotUpdate(builder_.graph(), states[i], made[i]);
  }
  return made[0];
}

absl::Status AddOptimizerUpdate(GraphBuilder& builder, const OptimizerKind& kind,
                                const UpdateRequest& request) {
  UpdateSite site(builder, kind, request);
  const ValueId updated =
      kind.update ? kind.update(site) : site.AddOp(kind.op, site.AllAttributes());
  WEFT_RETURN_IF_ERROR(site.status_);
  WEFT_RETURN_IF_ERROR(builder.status());
  builder.graph().SetVariableUpdate(request.variable, updated);
  return absl::OkStatus();
}

namespace internal {

bool RegisterOptimizerOrDie(OptimizerKind kind) {
  std::string fault = RegisteredOptimizers().contains(kind.name) ? "the name is taken" : "";
  for (const auto& [name, other] : RegisteredOptimizers()) {
    const std::string option = Difference(kind, other);
    if (option.empty()) continue;
    fault = absl::StrCat("its option ", option, " is not that of ", name,
                         "; take it from one function");
  }
  if (!fault.empty()) {
    std::fprintf(stderr, "optimizer %s: %s\n", kind.name.c_str(), fault.c_str());
    std::abort();
  }
  RegisteredOptimizers()[kind.name] = std::move(kind);
  return true;
}

}  // namespace internal
}  // namespace weft
