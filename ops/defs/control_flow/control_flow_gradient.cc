// The gradients of If, Loop, Scan and SequenceMap.
//
// If: an If on the same condition, whose branches run the forward branches again and differentiate
// them. Loop and Scan: the node again, for the values that it carries into each round; then a Scan
// over the rounds from the last to the first, whose body runs the forward body again on these and
// carries the gradients of what the forward body carries, and the sums of the gradients of what it
// captures. SequenceMap: a SequenceMap over the inputs and the arriving gradients, which gives the
// gradients of each element; those of what every element reads are added up.
#include "ops/defs/control_flow/control_flow_gradient.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_bodies.h"
#include "ops/axes.h"
#include "ops/defs/rules/backward_body.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<NodeBody> ForwardBody(const GradientContext& context, const std::string& name) {
  for (const NodeBody& body : BodiesOf(context.node())) {
    if (body.name == name) return body;
  }
  return absl::InvalidArgumentError(absl::StrCat("it has no body '", name, "'"));
}

bool IsFloatTensor(const ValueType& type) {
  return type.kind == ValueKind::kTensor && IsFloatingPoint(type.dtype);
}
bool NeedsGradient(const GradientContext& context, int input) {
  return context.NeedsInputGradient(input) &&
         IsFloatTensor(context.graph().value(context.Input(input)).type);
}

// The captures of a body whose gradients are wanted, as inputs of the node.
std::vector<int> WantedCaptures(const GradientContext& context, const NodeBody& body) {
  std::vector<int> wanted;
  for (int i = 0; i < body.captures; ++i) {
    if (NeedsGradient(context, body.first_capture + i)) wanted.push_back(body.first_capture + i);
  }
  return wanted;
}

struct ArrivingGradient {
  int output = 0;
  ValueId gradient;
};

std::vector<ArrivingGradient> ArrivingGradients(const GradientContext& context) {
  std::vector<ArrivingGradient> arriving;
  for (int i = 0; i < static_cast<int>(context.node().outputs.size()); ++i) {
    const ValueId output = context.Output(i);
    if (!output.valid() || !IsFloatTensor(context.graph().value(output).type)) continue;
    const ValueId gradient = context.OutputGradient(i);
    if (gradient.valid()) arriving.push_back({i, gradient});
  }
  return arriving;
}

// ---- If

// A branch that gives the gradient of each of the outer values `wanted`: zeros where the forward
// branch does not depend on one.
absl::Status AddBackwardBranch(GradientContext& context, const NodeBody& forward,
                               const std::vector<ArrivingGradient>& arriving,
                               const std::vector<ValueId>& wanted, Attributes& attributes,
                               std::vector<ValueId>& inputs) {
  BackwardBody body(context, forward);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs, body.RunForward({}));
  std::vector<GradientSeed> seeds;
  for (const ArrivingGradient& one : arriving) {
    const ValueId made = outputs[static_cast<size_t>(one.output)];
    seeds.push_back({made, body.Capture(one.gradient)});
  }
  std::vector<ValueId> values;
  for (const ValueId outer : wanted) values.push_back(body.Capture(outer));
  WEFT_ASSIGN_OR_RETURN(const auto gradients, body.Differentiate(seeds, values));
  for (const ValueId value : values) {
    const auto gradient = gradients.find(value);
    body.AddOutput(gradient != gradients.end() ? gradient->second : body.ZerosLike(value));
  }
  return body.AddTo(forward.name, attributes, inputs);
}

}  // namespace

absl::Status IfGradient(GradientContext& context) {
  const std::vector<ArrivingGradient> arriving = ArrivingGradients(context);
  std::vector<int> places;  // of the first capture of each wanted value
  std::vector<ValueId> wanted;
  const std::vector<NodeBody> branches = BodiesOf(context.node());
  for (const NodeBody& branch : branches) {
    for (const int input : WantedCaptures(context, branch)) {
      if (std::find(wanted.begin(), wanted.end(), context.Input(input)) != wanted.end()) continue;
      wanted.push_back(context.Input(input));
      places.push_back(input);
    }
  }
  if (arriving.empty() || wanted.empty()) return absl::OkStatus();
  Attributes attributes;
  std::vector<ValueId> inputs = {context.Input(0)};
  for (const NodeBody& branch : branches) {
    WEFT_RETURN_IF_ERROR(AddBackwardBranch(context, branch, arriving, wanted, attributes, inputs));
  }
  const std::vector<ValueId> gradients = context.builder().Ops(
      "", "If", std::move(inputs), std::move(attributes), std::vector<bool>(wanted.size(), true));
  WEFT_RETURN_IF_ERROR(context.builder().status());
  for (size_t i = 0; i < places.size(); ++i) context.SetInputGradient(places[i], gradients[i]);
  return absl::OkStatus();
}

namespace {

// ---- Loop and Scan

// The type of one round's part of a value that is stacked on `axis`.
ValueType PartType(ValueType type, int64_t axis) {
  if (!type.shape.has_rank()) return type;
  std::vector<Dim> dims = type.shape.dims();
  if (axis < 0) axis += static_cast<int64_t>(dims.size());
  if (axis >= 0 && axis < static_cast<int64_t>(dims.size())) dims.erase(dims.begin() + axis);
  type.shape = SymbolicShape(std::move(dims));
  return type;
}

// A value of which each round reads one part, in the backward Scan's terms.
struct ScannedValue {
  ValueId value;
  int64_t axis = 0;
  int64_t direction = 0;
};

// The forward node, as far as Loop and Scan are alike.
struct RoundsSpec {
  NodeBody body;
  int first_carried = 0;  // among the node's inputs
  int carried = 0;
  int first_made = 0;  // of the carried values among the body's outputs
  // Each own input of the body that is not carried, in order, and how many come before those.
  std::vector<ScannedValue> before;
  std::vector<ScannedValue> stash;  // of the carried values
  std::vector<ScannedValue> after;
  std::vector<int> after_inputs;  // of the node, for `after`
  // Of scan output k: how its gradient is read.
  std::vector<std::pair<int64_t, int64_t>> output_axes_and_directions;
};

class BackwardRounds {
 public:
  BackwardRounds(GradientContext& context, RoundsSpec spec)
      : context_(context),
        g_(context.builder()),
        spec_(std::move(spec)),
        body_(context, spec_.body) {}

  absl::Status Build() {
    captures_ = WantedCaptures(context_, spec_.body);
    for (int i = 0; i < spec_.carried; ++i) AddCarriedGradient(i);
    for (const int input : captures_) AddSum(input);
    WEFT_RETURN_IF_ERROR(g_.status());
    std::vector<ValueId> own;
    for (const auto* list : {&spec_.before, &spec_.stash, &spec_.after}) {
      for (const ScannedValue& one : *list) own.push_back(AddScanned(one));
    }
    WEFT_RETURN_IF_ERROR(AddOutputGradients());
    WEFT_RETURN_IF_ERROR(Differentiate(own));
    return AddScan();
  }

 private:
  int64_t num_before() const { return static_cast<int64_t>(spec_.before.size()); }

  ValueId AddState(const std::string& name, ValueId initial) {
    initial_.push_back(initial);
    return body_.AddInput(name, g_.type(initial));
  }

  // The gradient of carried value i, from round to round.
  void AddCarriedGradient(int i) {
    const ValueId output = context_.Output(i);
    const ValueId like = output.valid() ? output : context_.Input(spec_.first_carried + i);
    const bool is_float = IsFloatTensor(g_.type(like));
    carried_states_.push_back(kNoValue);
    if (!is_float || !g_.status().ok()) return;
    ValueId arriving = output.valid() ? context_.OutputGradient(i) : kNoValue;
    if (!arriving.valid()) arriving = ZerosLike(g_, like);
    if (!g_.status().ok()) return;
    carried_states_.back() = AddState(absl::StrCat("grad/carried", i), arriving);
  }

  void AddSum(int input) {
    const ValueId zeros = ZerosLike(g_, context_.Input(input));
    if (!g_.status().ok()) return;
    sums_.push_back(AddState(absl::StrCat("grad/captured", input), zeros));
  }

  ValueId AddScanned(const ScannedValue& one) {
    scanned_.push_back(one);
    return body_.AddInput(absl::StrCat("part", scanned_.size()),
                          PartType(g_.type(one.value), one.axis));
  }

  absl::Status AddOutputGradients() {
    for (const ArrivingGradient& one : ArrivingGradients(context_)) {
      if (one.output < spec_.carried) continue;
      const auto k = static_cast<size_t>(one.output - spec_.carried);
      const auto [axis, direction] = spec_.output_axes_and_directions[k];
      part_gradients_.push_back({one.output, AddScanned({one.gradient, axis, direction})});
    }
    return g_.status();
  }

  absl::Status Differentiate(const std::vector<ValueId>& own) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> made, body_.RunForward(own));
    std::vector<GradientSeed> seeds;
    for (int i = 0; i < spec_.carried; ++i) {
      if (!carried_states_[i].valid()) continue;
      seeds.push_back({made[spec_.first_made + i], carried_states_[i]});
    }
    for (const ArrivingGradient& part : part_gradients_) {
      seeds.push_back({made[spec_.first_made + part.output], part.gradient});
    }
    const auto carried = [&](int i) { return own[num_before() + i]; };
    const auto after = [&](size_t i) { return own[num_before() + spec_.carried + i]; };
    std::vector<ValueId> wanted;
    for (int i = 0; i < spec_.carried; ++i) {
      if (carried_states_[i].valid()) wanted.push_back(carried(i));
    }
    for (const int input : captures_) wanted.push_back(body_.ForwardCapture(input));
    for (size_t i = 0; i < spec_.after.size(); ++i) {
      if (NeedsGradient(context_, spec_.after_inputs[i])) wanted.push_back(after(i));
    }
    WEFT_ASSIGN_OR_RETURN(const auto gradients, body_.Differentiate(seeds, wanted));
    const auto gradient_of = [&](ValueId value) {
      const auto found = gradients.find(value);
      return found != gradients.end() ? found->second : kNoValue;
    };
    const auto or_zeros = [&](ValueId value) {
      const ValueId gradient = gradient_of(value);
      return gradient.valid() ? gradient : body_.ZerosLike(value);
    };
    for (int i = 0; i < spec_.carried; ++i) {
      if (carried_states_[i].valid()) body_.AddOutput(or_zeros(carried(i)));
    }
    for (size_t i = 0; i < captures_.size(); ++i) {
      const ValueId gradient = gradient_of(body_.ForwardCapture(captures_[i]));
      body_.AddOutput(gradient.valid() ? body_.builder().Op("Add", {sums_[i], gradient})
                                       : sums_[i]);
    }
    for (size_t i = 0; i < spec_.after.size(); ++i) {
      if (!NeedsGradient(context_, spec_.after_inputs[i])) continue;
      body_.AddOutput(or_zeros(after(i)));
      // Each round puts its part where it was read: the rounds run the other way now.
      stacked_.push_back(spec_.after_inputs[i]);
      stacked_axes_.push_back(spec_.after[i].axis);
      stacked_directions_.push_back(spec_.after[i].direction);
    }
    return body_.builder().status();
  }

  absl::Status AddScan() {
    std::vector<ValueId> inputs = initial_;
    std::vector<int64_t> axes;
    std::vector<int64_t> directions;
    for (const ScannedValue& one : scanned_) {
      inputs.push_back(one.value);
      axes.push_back(one.axis);
      directions.push_back(one.direction);
    }
    Attributes attributes = {{"num_scan_inputs", static_cast<int64_t>(scanned_.size())},
                             {"scan_input_axes", axes},
                             {"scan_input_directions", directions}};
    if (!stacked_.empty()) {
      attributes.Set("scan_output_axes", stacked_axes_);
      attributes.Set("scan_output_directions", stacked_directions_);
    }
    WEFT_RETURN_IF_ERROR(body_.AddTo("body", attributes, inputs));
    const size_t count = initial_.size() + stacked_.size();
    const std::vector<ValueId> results = g_.Ops(
        "", "Scan", std::move(inputs), std::move(attributes), std::vector<bool>(count, true));
    WEFT_RETURN_IF_ERROR(g_.status());
    size_t next = 0;
    for (int i = 0; i < spec_.carried; ++i) {
      if (!carried_states_[i].valid()) continue;
      context_.SetInputGradient(spec_.first_carried + i, results[next++]);
    }
    for (const int input : captures_) context_.SetInputGradient(input, results[next++]);
    for (const int input : stacked_) context_.SetInputGradient(input, results[next++]);
    return absl::OkStatus();
  }

  GradientContext& context_;
  GraphBuilder& g_;
  const RoundsSpec spec_;
  BackwardBody body_;
  std::vector<int> captures_;            // whose gradients are wanted, as inputs of the node
  std::vector<ValueId> initial_;         // outer, of all states
  std::vector<ValueId> carried_states_;  // in the body; kNoValue: nothing to differentiate
  std::vector<ValueId> sums_;
  std::vector<ScannedValue> scanned_;
  std::vector<ArrivingGradient> part_gradients_;  // of the node's outputs, in the body
  std::vector<int> stacked_;                      // inputs whose gradients are stacked
  std::vector<int64_t> stacked_axes_;
  std::vector<int64_t> stacked_directions_;
};

absl::Status CheckTensors(const GradientContext& context, int first, int last) {
  for (int i = first; i < last; ++i) {
    const ValueDef& value = context.graph().value(context.Input(i));
    if (value.type.kind == ValueKind::kTensor) continue;
    return absl::UnimplementedError(
        absl::StrCat("node '", context.node().name, "' carries '", value.name, "', which is ",
                     value.type.ToString(), "; gradients pass through loops that carry tensors"));
  }
  return absl::OkStatus();
}

// Loop or Scan again, its carried values as scan outputs behind `fixed` others of the body's
// inputs; its own scan outputs are left out. Of the body's own inputs, [first, last) are kept.
absl::StatusOr<std::vector<ValueId>> Stash(GradientContext& context, const NodeBody& forward,
                                           const std::vector<ValueType>& own_types, int made,
                                           int kept, Attributes attributes) {
  BackwardBody body(context, forward);
  std::vector<ValueId> own;
  for (size_t i = 0; i < own_types.size(); ++i) {
    own.push_back(body.AddInput(absl::StrCat("in", i), own_types[i]));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs, body.RunForward(own));
  for (int i = 0; i < made; ++i) body.AddOutput(outputs[static_cast<size_t>(i)]);
  for (int i = 0; i < kept; ++i) body.AddOutput(own[static_cast<size_t>(i)]);
  const int own_inputs = NumOwnInputs(context.node());
  std::vector<ValueId> inputs(context.node().inputs.begin(),
                              context.node().inputs.begin() + own_inputs);
  WEFT_RETURN_IF_ERROR(body.AddTo("body", attributes, inputs));
  const bool is_loop = context.node().op == "Loop";
  const int carried = is_loop ? made - 1 : made;
  std::vector<bool> wanted(static_cast<size_t>(carried + kept), true);
  std::fill(wanted.begin(), wanted.begin() + carried, false);
  std::vector<ValueId> results = context.builder().Ops("", context.node().op, std::move(inputs),
                                                       std::move(attributes), std::move(wanted));
  WEFT_RETURN_IF_ERROR(context.builder().status());
  return std::vector<ValueId>(results.begin() + carried, results.end());
}

// What is carried has the type that inference has settled on.
ValueType CarriedType(const GradientContext& context, int first_input, int i) {
  const ValueId output = context.Output(i);
  const ValueId value = output.valid() ? output : context.Input(first_input + i);
  return context.graph().value(value).type;
}

}  // namespace

absl::Status LoopGradient(GradientContext& context) {
  if (ArrivingGradients(context).empty()) return absl::OkStatus();
  RoundsSpec spec;
  WEFT_ASSIGN_OR_RETURN(spec.body, ForwardBody(context, "body"));
  const int own = NumOwnInputs(context.node());
  spec.first_carried = 2;
  spec.carried = std::max(own - 2, 0);
  spec.first_made = 1;
  WEFT_RETURN_IF_ERROR(CheckTensors(context, spec.first_carried, own));
  std::vector<ValueType> types = {{ValueKind::kTensor, DType::kInt64, SymbolicShape(Shape{})},
                                  {ValueKind::kTensor, DType::kBool, SymbolicShape(Shape{})}};
  for (int i = 0; i < spec.carried; ++i) types.push_back(CarriedType(context, 2, i));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> stash,
                        Stash(context, spec.body, types, 1 + spec.carried, 2 + spec.carried, {}));
  for (int i = 0; i < 2; ++i) spec.before.push_back({stash[i], 0, 1});
  for (int i = 0; i < spec.carried; ++i) spec.stash.push_back({stash[2 + i], 0, 1});
  const auto outputs = static_cast<int>(spec.body.graph->outputs().size());
  spec.output_axes_and_directions.assign(std::max(outputs - 1 - spec.carried, 0), {0, 1});
  return BackwardRounds(context, std::move(spec)).Build();
}

absl::Status ScanGradient(GradientContext& context) {
  if (ArrivingGradients(context).empty()) return absl::OkStatus();
  RoundsSpec spec;
  WEFT_ASSIGN_OR_RETURN(spec.body, ForwardBody(context, "body"));
  const Attributes& attributes = context.node().attributes;
  const int own = NumOwnInputs(context.node());
  spec.carried = own - static_cast<int>(attributes.Int("num_scan_inputs", 0));
  const std::vector<int64_t> axes = attributes.Ints("scan_input_axes");
  const std::vector<int64_t> directions = attributes.Ints("scan_input_directions");
  WEFT_RETURN_IF_ERROR(CheckTensors(context, 0, own));
  std::vector<ValueType> types;
  for (int i = 0; i < spec.carried; ++i) types.push_back(CarriedType(context, 0, i));
  Attributes forward;
  for (const char* name : {"num_scan_inputs", "scan_input_axes", "scan_input_directions"}) {
    if (attributes.Find(name) != nullptr) forward.Set(name, *attributes.Find(name));
  }
  for (int i = spec.carried; i < own; ++i) {
    const auto k = static_cast<size_t>(i - spec.carried);
    const ValueType& type = context.graph().value(context.Input(i)).type;
    types.push_back(PartType(type, NumberAt(axes, k)));
    spec.after.push_back(
        {context.Input(i), NumberAt(axes, k), NumberAt(directions, k) == 0 ? 1 : 0});
    spec.after_inputs.push_back(i);
  }
  if (spec.carried > 0) {
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<ValueId> stash,
        Stash(context, spec.body, types, spec.carried, spec.carried, std::move(forward)));
    for (const ValueId value : stash) spec.stash.push_back({value, 0, 1});
  }
  const auto outputs = static_cast<int>(spec.body.graph->outputs().size());
  for (int i = spec.carried; i < outputs; ++i) {
    const auto k = static_cast<size_t>(i - spec.carried);
    spec.output_axes_and_directions.push_back(
        {NumberAt(attributes.Ints("scan_output_axes"), k),
         NumberAt(attributes.Ints("scan_output_directions"), k) == 0 ? 1 : 0});
  }
  return BackwardRounds(context, std::move(spec)).Build();
}

namespace {

// ---- SequenceMap

ValueType ElementType(ValueType type) {
  type.kind = ValueKind::kTensor;
  return type;
}

// The gradients of outputs, which are sequences.
std::vector<ArrivingGradient> ArrivingSequences(const GradientContext& context) {
  std::vector<ArrivingGradient> arriving;
  for (int i = 0; i < static_cast<int>(context.node().outputs.size()); ++i) {
    const ValueId output = context.Output(i);
    if (!output.valid() || !IsFloatingPoint(context.graph().value(output).type.dtype)) continue;
    const ValueId gradient = context.OutputGradient(i);
    if (gradient.valid()) arriving.push_back({i, gradient});
  }
  return arriving;
}

// The sum of the elements of a sequence, each like `like`, by a Loop that carries it: stacked, they
// would have a shape that depends on data.
absl::StatusOr<ValueId> SumOfElements(GraphBuilder& b, ValueId sequence, ValueId like) {
  auto body = std::make_shared<Graph>();
  GraphBuilder g(*body);
  const auto scalar = [&body](const char* name, DType dtype) {
    return body->AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(Shape{})});
  };
  const ValueId round = scalar("round", DType::kInt64);
  const ValueId go = scalar("go", DType::kBool);
  const ValueId sum = body->AddInput("sum", b.type(like));
  const ValueId elements = body->AddInput("elements", b.type(sequence));
  body->AddOutput(g.Op("Identity", {go}));
  body->AddOutput(g.Op("Add", {sum, g.Op("SequenceAt", {elements, round})}));
  WEFT_RETURN_IF_ERROR(g.status());
  return b.Ops("", "Loop",
               {b.Op("SequenceLength", {sequence}), kNoValue, ZerosLike(b, like), sequence},
               {{"body", body}, {CapturesAttribute("body"), std::vector<std::string>{"elements"}}},
               {true})[0];
}

}  // namespace

absl::Status SequenceMapGradient(GradientContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody forward, ForwardBody(context, "body"));
  GraphBuilder& g = context.builder();
  const std::vector<ArrivingGradient> arriving = ArrivingSequences(context);
  const int own = NumOwnInputs(context.node());
  std::vector<int> wanted;
  for (int i = 0; i < own; ++i) {
    if (context.NeedsInputGradient(i)) wanted.push_back(i);
  }
  for (const int input : WantedCaptures(context, forward)) wanted.push_back(input);
  if (arriving.empty() || wanted.empty()) return absl::OkStatus();
  BackwardBody body(context, forward);
  std::vector<ValueId> inputs;
  std::vector<ValueId> elements;
  for (int i = 0; i < own; ++i) {
    inputs.push_back(context.Input(i));
    elements.push_back(body.AddInput(absl::StrCat("in", i), ElementType(g.type(context.Input(i)))));
  }
  std::vector<GradientSeed> seeds;
  for (const ArrivingGradient& one : arriving) {
    inputs.push_back(one.gradient);
    const ValueType type = ElementType(g.type(context.Output(one.output)));
    seeds.push_back({kNoValue, body.AddInput(absl::StrCat("grad/out", one.output), type)});
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> made, body.RunForward(elements));
  for (size_t i = 0; i < seeds.size(); ++i) {
    seeds[i].value = made[static_cast<size_t>(arriving[i].output)];
  }
  std::vector<ValueId> values;
  for (const int input : wanted) {
    values.push_back(input < own ? elements[input] : body.ForwardCapture(input));
  }
  WEFT_ASSIGN_OR_RETURN(const auto gradients, body.Differentiate(seeds, values));
  for (const ValueId value : values) {
    const auto gradient = gradients.find(value);
    body.AddOutput(gradient != gradients.end() ? gradient->second : body.ZerosLike(value));
  }
  Attributes attributes;
  WEFT_RETURN_IF_ERROR(body.AddTo("body", attributes, inputs));
  const std::vector<ValueId> of_elements =
      g.Ops("", "SequenceMap", std::move(inputs), std::move(attributes),
            std::vector<bool>(wanted.size(), true));
  WEFT_RETURN_IF_ERROR(g.status());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ValueId input = context.Input(wanted[i]);
    ValueId gradient = of_elements[i];
    if (g.type(input).kind != ValueKind::kSequence) {
      WEFT_ASSIGN_OR_RETURN(gradient, SumOfElements(g, of_elements[i], input));
    }
    context.SetInputGradient(wanted[i], gradient);
  }
  return g.status();
}

}  // namespace weft
