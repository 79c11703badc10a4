#include "training/graph/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr char kAverageSlot[] = "ema";

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value < high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", expected a number in [", low, ", ", high, ")"));
}

// A tensor of the type of `like` (concrete), all `value`; none for zero.
absl::StatusOr<Tensor> Filled(const ValueType& like, double value) {
  if (value == 0) return Tensor();
  const std::optional<Shape> shape = like.shape.ToConcrete();
  if (!shape.has_value()) {
    return absl::InternalError(absl::StrCat("a weight has the shape ", like.shape.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(like.dtype, *shape));
  if (like.dtype == DType::kFloat64) {
    std::ranges::fill(tensor.mutable_data<double>(), value);
  } else {
    std::ranges::fill(tensor.mutable_data<float>(), static_cast<float>(value));
  }
  return tensor;
}

// State of a variable, in its dtype and shape. The slot's name has a suffix when the model has a
// value of that name.
ValueId AddSlot(Graph& graph, const std::string& variable, const std::string& slot,
                Tensor initial = Tensor()) {
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

// One update: what its nodes read.
struct UpdateSite {
  GraphBuilder& builder;
  const OptimizerSpec& spec;
  const OptimizerInputs& inputs;
  const std::string& variable;
  ValueId gradient;
  Tensor accumulator;  // what a sum of squares starts with; not valid = zeros

  Graph& graph() const { return builder.graph(); }
  ValueId weight() const { return graph().FindVariable(variable)->value; }
  ValueId Slot(const std::string& name) const { return AddSlot(graph(), variable, name); }
};

using Slots = std::vector<ValueId>;

// Adds op(operands, slots, more) -> (result, new slots) and makes the new slots the updates of the
// slots. Slots and operands that are kNoValue are absent.
ValueId AddStateful(const UpdateSite& site, const std::string& op, Attributes attributes,
                    std::vector<ValueId> operands, const Slots& slots,
                    const std::vector<ValueId>& more = {}) {
  std::vector<bool> wanted = {true};
  for (const ValueId slot : slots) wanted.push_back(slot.valid());
  operands.insert(operands.end(), slots.begin(), slots.end());
  operands.insert(operands.end(), more.begin(), more.end());
  while (!operands.back().valid()) operands.pop_back();
  while (!wanted.back()) wanted.pop_back();
  const std::vector<ValueId> made = site.builder.Ops(
      std::string(kWeftDomain), op, std::move(operands), std::move(attributes), std::move(wanted));
  if (!site.builder.status().ok()) return kNoValue;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].valid()) SetSlotUpdate(site.graph(), slots[i], made[1 + i]);
  }
  return made[0];
}

void SetUpdate(const UpdateSite& site, ValueId updated) {
  if (updated.valid()) site.graph().SetVariableUpdate(site.variable, updated);
}

float Number(double value) { return static_cast<float>(value); }

// What a kind usually has; 0 = it has none, or none by default.
struct UsualValues {
  double learning_rate;
  double momentum;
  double beta1;
  double beta2;
  double epsilon;
};
const UsualValues& UsualOf(const std::string& kind);

double Momentum(const OptimizerSpec& spec) {
  return spec.momentum.value_or(UsualOf(spec.kind).momentum);
}
double Epsilon(const OptimizerSpec& spec) {
  return spec.epsilon.value_or(UsualOf(spec.kind).epsilon);
}
Attributes Betas(const OptimizerSpec& spec) {
  return {{"beta1", Number(spec.beta1.value_or(UsualOf(spec.kind).beta1))},
          {"beta2", Number(spec.beta2.value_or(UsualOf(spec.kind).beta2))}};
}
Attributes Decay(const OptimizerSpec& spec) {
  return {{"weight_decay", Number(spec.weight_decay)}};
}

// Gradient descent; `scale` of the decayed gradient, if any.
void AddDescent(const UpdateSite& site, Attributes attributes, double momentum, ValueId scale) {
  const OptimizerSpec& spec = site.spec;
  ValueId velocity;
  ValueId step;
  if (momentum > 0) {
    velocity = site.Slot("velocity");
    attributes.Set("momentum", Number(momentum));
    attributes.Set("nesterov", int64_t{spec.kind == "nesterov"});
    if (spec.kind == "momentum" && spec.dampening > 0) {
      attributes.Set("dampening", Number(spec.dampening));
      step = site.inputs.step;
    }
  }
  SetUpdate(site, AddStateful(site, "SgdUpdate", std::move(attributes),
                              {site.weight(), site.gradient, site.inputs.learning_rate}, {velocity},
                              {scale, step}));
}

void AddSgd(const UpdateSite& site) { AddDescent(site, Decay(site.spec), 0, kNoValue); }

void AddMomentum(const UpdateSite& site) {
  AddDescent(site, Decay(site.spec), Momentum(site.spec), kNoValue);
}

// How far the parameter may go for its length; norms are of the whole parameter, wherever its
// shards are, since the partitioner adds up the sums of squares.
ValueId TrustRatio(const UpdateSite& site, ValueId direction, Attributes attributes) {
  GraphBuilder& builder = site.builder;
  const Attributes all = {{"keepdims", int64_t{0}}};
  const ValueId w_square = builder.Op("ReduceSumSquare", {site.weight()}, all);
  const ValueId u_square = builder.Op("ReduceSumSquare", {direction}, all);
  return builder.WeftOp("TrustRatio", {w_square, u_square}, std::move(attributes));
}

void AddLars(const UpdateSite& site) {
  const ValueId ratio = TrustRatio(site, site.gradient,
                                   {{"coefficient", Number(site.spec.trust)},
                                    {"weight_decay", Number(site.spec.weight_decay)},
                                    {"epsilon", Number(Epsilon(site.spec))}});
  AddDescent(site, Decay(site.spec), Momentum(site.spec), ratio);
}

void AddAdam(const UpdateSite& site) {
  const OptimizerSpec& spec = site.spec;
  Attributes attributes = Betas(spec);
  attributes.Set("epsilon", Number(Epsilon(spec)));
  attributes.Set("weight_decay", Number(spec.weight_decay));
  attributes.Set("decoupled", int64_t{spec.kind == "adamw"});
  Slots slots = {site.Slot("m"), site.Slot("v")};
  if (spec.kind == "amsgrad") slots.push_back(site.Slot("v_max"));
  SetUpdate(site,
            AddStateful(site, "AdamUpdate", std::move(attributes),
                        {site.weight(), site.gradient, site.inputs.learning_rate, site.inputs.step},
                        slots));
}

void AddLamb(const UpdateSite& site) {
  Attributes attributes = Betas(site.spec);
  attributes.Set("epsilon", Number(Epsilon(site.spec)));
  attributes.Set("weight_decay", Number(site.spec.weight_decay));
  const ValueId direction = AddStateful(site, "LambDirection", std::move(attributes),
                                        {site.weight(), site.gradient, site.inputs.step},
                                        {site.Slot("m"), site.Slot("v")});
  const ValueId ratio = TrustRatio(site, direction, {});
  SetUpdate(site, AddStateful(site, "SgdUpdate", {},
                              {site.weight(), direction, site.inputs.learning_rate}, {kNoValue},
                              {ratio}));
}

void AddAdagrad(const UpdateSite& site) {
  Attributes attributes = Decay(site.spec);
  attributes.Set("rate_decay", Number(site.spec.rate_decay));
  attributes.Set("epsilon", Number(Epsilon(site.spec)));
  const ValueId sum = AddSlot(site.graph(), site.variable, "sum", site.accumulator);
  SetUpdate(site,
            AddStateful(site, "AdagradUpdate", std::move(attributes),
                        {site.weight(), site.gradient, site.inputs.learning_rate, site.inputs.step},
                        {sum}));
}

void AddAdadelta(const UpdateSite& site) {
  Attributes attributes = Decay(site.spec);
  attributes.Set("rho", Number(site.spec.rho));
  attributes.Set("epsilon", Number(Epsilon(site.spec)));
  SetUpdate(site, AddStateful(site, "AdadeltaUpdate", std::move(attributes),
                              {site.weight(), site.gradient, site.inputs.learning_rate},
                              {site.Slot("square"), site.Slot("delta")}));
}

void AddRmsprop(const UpdateSite& site) {
  const OptimizerSpec& spec = site.spec;
  Attributes attributes = Decay(spec);
  attributes.Set("alpha", Number(spec.alpha));
  attributes.Set("epsilon", Number(Epsilon(spec)));
  const double momentum = Momentum(spec);
  if (momentum > 0) attributes.Set("momentum", Number(momentum));
  const Slots slots = {site.Slot("square"), spec.centered ? site.Slot("mean") : kNoValue,
                       momentum > 0 ? site.Slot("velocity") : kNoValue};
  SetUpdate(site, AddStateful(site, "RmspropUpdate", std::move(attributes),
                              {site.weight(), site.gradient, site.inputs.learning_rate}, slots));
}

void AddLion(const UpdateSite& site) {
  Attributes attributes = Betas(site.spec);
  attributes.Set("weight_decay", Number(site.spec.weight_decay));
  SetUpdate(site, AddStateful(site, "LionUpdate", std::move(attributes),
                              {site.weight(), site.gradient, site.inputs.learning_rate},
                              {site.Slot("m")}));
}

struct Optimizer {
  void (*add)(const UpdateSite&);
  UsualValues usual;  // learning rate, momentum, beta1, beta2, epsilon
};

const std::map<std::string, Optimizer>& Optimizers() {
  static const auto* const kOptimizers = new std::map<std::string, Optimizer>{
      {"adadelta", {AddAdadelta, {1.0, 0, 0, 0, 1e-6}}},
      {"adagrad", {AddAdagrad, {0.01, 0, 0, 0, 1e-10}}},
      {"adam", {AddAdam, {0.001, 0, 0.9, 0.999, 1e-8}}},
      {"adamw", {AddAdam, {0.001, 0, 0.9, 0.999, 1e-8}}},
      {"amsgrad", {AddAdam, {0.001, 0, 0.9, 0.999, 1e-8}}},
      {"lamb", {AddLamb, {0.001, 0, 0.9, 0.999, 1e-6}}},
      {"lars", {AddLars, {0.01, 0.9, 0, 0, 1e-8}}},
      {"lion", {AddLion, {0.0001, 0, 0.9, 0.99, 0}}},
      {"momentum", {AddMomentum, {0.01, 0.9, 0, 0, 0}}},
      {"nesterov", {AddMomentum, {0.01, 0.9, 0, 0, 0}}},
      {"rmsprop", {AddRmsprop, {0.01, 0, 0, 0, 1e-8}}},
      {"sgd", {AddSgd, {0.01, 0, 0, 0, 0}}},
  };
  return *kOptimizers;
}

const UsualValues& UsualOf(const std::string& kind) {
  static constexpr UsualValues kNone = {0.01, 0, 0, 0, 0};
  const auto found = Optimizers().find(kind);
  return found == Optimizers().end() ? kNone : found->second.usual;
}

}  // namespace

bool OptimizerSpec::needs_step_number() const {
  return kind == "adam" || kind == "adamw" || kind == "amsgrad" || kind == "lamb" ||
         kind == "adagrad" || (kind == "momentum" && dampening > 0);
}

std::vector<std::string> OptimizerKinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, optimizer] : Optimizers()) kinds.push_back(kind);
  return kinds;
}

double UsualLearningRate(const std::string& kind) { return UsualOf(kind).learning_rate; }

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  if (!Optimizers().contains(spec.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no optimizer '", spec.kind, "'", DidYouMean(spec.kind, OptimizerKinds()),
                     "; there are: ", absl::StrJoin(OptimizerKinds(), ", ")));
  }
  absl::Status status = CheckRange("learning rate", spec.learning_rate, 0, 1e6);
  status.Update(CheckRange("momentum", Momentum(spec), 0, 1));
  status.Update(CheckRange("dampening", spec.dampening, 0, 1));
  status.Update(CheckRange("weight decay", spec.weight_decay, 0, 1e6));
  status.Update(CheckRange("beta1", spec.beta1.value_or(0), 0, 1));
  status.Update(CheckRange("beta2", spec.beta2.value_or(0), 0, 1));
  status.Update(CheckRange("epsilon", Epsilon(spec), 0, 1e6));
  status.Update(CheckRange("alpha", spec.alpha, 0, 1));
  status.Update(CheckRange("rho", spec.rho, 0, 1));
  status.Update(CheckRange("rate decay", spec.rate_decay, 0, 1e6));
  status.Update(CheckRange("initial accumulator", spec.initial_accumulator, 0, 1e6));
  status.Update(CheckRange("trust coefficient", spec.trust, 0, 1e6));
  return status;
}

absl::Status AddUpdate(GraphBuilder& builder, const OptimizerSpec& spec,
                       const OptimizerInputs& inputs, const std::string& variable,
                       ValueId gradient) {
  const auto optimizer = Optimizers().find(spec.kind);
  if (optimizer == Optimizers().end()) return ValidateOptimizer(spec);
  builder.set_name_prefix(absl::StrCat("update/", variable, "/"));
  const Graph& graph = builder.graph();
  WEFT_ASSIGN_OR_RETURN(
      Tensor accumulator,
      Filled(graph.value(graph.FindVariable(variable)->value).type, spec.initial_accumulator));
  optimizer->second.add({builder, spec, inputs, variable, gradient, std::move(accumulator)});
  return builder.status();
}

absl::Status AddMovingAverage(GraphBuilder& builder, double decay, const std::string& variable) {
  WEFT_RETURN_IF_ERROR(CheckRange("the decay of the moving average", decay, 0, 1));
  Graph& graph = builder.graph();
  const ValueId average =
      AddSlot(graph, variable, kAverageSlot, graph.FindVariable(variable)->initial);
  builder.set_name_prefix(absl::StrCat("update/", variable, "/"));
  const ValueId updated = builder.WeftOp(
      "EmaUpdate", {average, graph.FindVariable(variable)->update}, {{"decay", Number(decay)}});
  if (builder.status().ok()) SetSlotUpdate(graph, average, updated);
  return builder.status();
}

std::string MovingAverageOf(const Graph& graph, const std::string& variable) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "EmaUpdate") continue;
    const Variable* const average = graph.VariableOf(node.inputs[0]);
    if (average != nullptr && average->slot_of == variable) return average->name;
  }
  return "";
}

}  // namespace weft
