// RNN, GRU and LSTM.
//
// Behind ONNX's outputs they have some of ours, which only their gradient asks for
// (recurrent_gradient.cc): "gates", what it needs of the gates at every step, and LSTM's "cells".
// They are [directions, rows of X, width]. A gate of sigmoid or tanh is kept as it was, clipped
// ones and others by their arguments.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/recurrent/recurrent_gradient.h"
#include "ops/defs/recurrent/recurrent_operands.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Whether the batch is the first axis (layout 1) of X, Y and the states, or follows others.
bool BatchFirst(const Attributes& attributes) { return attributes.Int("layout", 0) == 1; }

absl::StatusOr<int64_t> Directions(const InferenceContext& context) {
  const std::string direction = context.attributes().String("direction", "forward");
  if (direction == "forward" || direction == "reverse") return 1;
  if (direction == "bidirectional") return 2;
  return context.Error(absl::StrCat("attribute 'direction' is '", direction,
                                    "', expected forward, reverse or bidirectional"));
}

// The sizes that the operands must share.
struct Sizes {
  Dim directions;
  Dim time;
  Dim batch;
  Dim input;
  Dim hidden;
  Dim gates;  // as many times hidden as the op has gates

  std::vector<Dim> State(bool batch_first) const {
    if (batch_first) return {batch, directions, hidden};
    return {directions, batch, hidden};
  }
};

Dim Times(const Dim& dim, int64_t factor) {
  return dim.is_known() ? Dim(dim.size() * factor) : Dim();
}

absl::Status CheckOperand(const InferenceContext& context, int input, const char* name,
                          const std::vector<Dim>& expected) {
  if (!context.HasInput(input)) return absl::OkStatus();
  const SymbolicShape& shape = context.InputShape(input);
  if (!shape.has_rank()) return absl::OkStatus();
  bool fits = shape.rank() == static_cast<int>(expected.size());
  for (int i = 0; fits && i < shape.rank(); ++i) {
    fits = !shape.dim(i).is_known() || !expected[i].is_known() ||
           shape.dim(i).size() == expected[i].size();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat(name, " has shape ", shape.ToString(), ", expected ",
                                    SymbolicShape(expected).ToString()));
}

absl::StatusOr<Sizes> SizesOf(const InferenceContext& context, int64_t gate_count) {
  Sizes sizes;
  WEFT_ASSIGN_OR_RETURN(const int64_t directions, Directions(context));
  sizes.directions = Dim(directions);
  const SymbolicShape& x = context.InputShape(kX);
  const SymbolicShape& r = context.InputShape(kR);
  if (x.has_rank()) {
    if (x.rank() != 3) {
      return context.Error(
          absl::StrCat("X has shape ", x.ToString(), ", expected time, batch and input axes"));
    }
    const bool batch_first = BatchFirst(context.attributes());
    sizes.time = x.dim(batch_first ? 1 : 0);
    sizes.batch = x.dim(batch_first ? 0 : 1);
    sizes.input = x.dim(2);
  }
  if (context.attributes().Has("hidden_size")) {
    sizes.hidden = Dim(context.attributes().Int("hidden_size", 0));
  } else if (r.has_rank() && r.rank() == 3) {
    sizes.hidden = r.dim(2);
  }
  if (sizes.hidden.is_known() && (sizes.hidden.size() < 1 || sizes.hidden.size() > kMaxDim / 8)) {
    return context.Error(absl::StrCat("the hidden size is ", sizes.hidden.size()));
  }
  sizes.gates = Times(sizes.hidden, gate_count);
  return sizes;
}

absl::Status CheckOperands(const InferenceContext& context, const Sizes& sizes) {
  const std::vector<Dim> state = sizes.State(BatchFirst(context.attributes()));
  const Dim& d = sizes.directions;
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kW, "W", {d, sizes.gates, sizes.input}));
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kR, "R", {d, sizes.gates, sizes.hidden}));
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kB, "B", {d, Times(sizes.gates, 2)}));
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kSequenceLens, "sequence_lens", {sizes.batch}));
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kInitialH, "initial_h", state));
  WEFT_RETURN_IF_ERROR(CheckOperand(context, kInitialC, "initial_c", state));
  return CheckOperand(context, kP, "P", {d, Times(sizes.hidden, 3)});
}

absl::Status InferRecurrent(InferenceContext& context, int64_t gate_count) {
  std::vector<int> floats = {kX, kW, kR};
  for (const int i : {kB, kInitialH, kInitialC, kP}) {
    if (context.HasInput(i)) floats.push_back(i);
  }
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  WEFT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(context, gate_count));
  WEFT_RETURN_IF_ERROR(CheckOperands(context, sizes));
  const bool batch_first = BatchFirst(context.attributes());
  const DType dtype = context.InputType(kX).dtype;
  if (context.HasOutput(0)) {
    std::vector<Dim> y = {sizes.time, sizes.directions, sizes.batch, sizes.hidden};
    if (batch_first) y = {sizes.batch, sizes.time, sizes.directions, sizes.hidden};
    context.SetOutput(0, dtype, SymbolicShape(std::move(y)));
  }
  const int states = gate_count == 4 ? 2 : 1;
  for (int i = 1; i <= states; ++i) {
    if (context.HasOutput(i)) {
      context.SetOutput(i, dtype, SymbolicShape(sizes.State(batch_first)));
    }
  }
  // A GRU that is linear before reset keeps what the candidate gets from the state, too.
  const bool keeps_more = context.attributes().Int("linear_before_reset", 0) != 0;
  const Dim widths[] = {keeps_more ? Times(sizes.hidden, gate_count + 1) : sizes.gates,
                        sizes.hidden};
  for (int i = states + 1; i < context.num_outputs(); ++i) {
    if (!context.HasOutput(i)) continue;
    std::vector<Dim> kept = {sizes.directions, sizes.time, sizes.batch, widths[i - states - 1]};
    if (batch_first) std::swap(kept[1], kept[2]);
    context.SetOutput(i, dtype, SymbolicShape(std::move(kept)));
  }
  return absl::OkStatus();
}

InferFn InferGates(int64_t gate_count) {
  return [gate_count](InferenceContext& context) { return InferRecurrent(context, gate_count); };
}

// Samples stand alone.
absl::StatusOr<FactorRule> LstmRule(const NodeView& view) {
  const bool batch_first = BatchFirst(view.attributes());
  FactorRuleBuilder rule;
  const int batch = rule.Factor(view.InputShape(kX).dim(batch_first ? 0 : 1));
  // An operand whose axis `axis` is the batch; -1 for one without.
  const auto dims = [&](const Shape& shape, int axis) {
    std::vector<int> factors;
    for (int i = 0; i < shape.rank(); ++i) {
      factors.push_back(i == axis ? batch : rule.Factor(shape.dim(i), FactorKind::kWhole));
    }
    return factors;
  };
  const int state_axis = batch_first ? 0 : 1;
  for (int i = 0; i < view.num_inputs(); ++i) {
    const bool state = i == kX || i == kInitialH || i == kInitialC;
    const int axis = state ? state_axis : i == kSequenceLens ? 0 : -1;
    rule.Input(view.HasInput(i) ? dims(view.InputShape(i), axis) : std::vector<int>{});
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    int axis = state_axis;
    if (i == 0) axis = batch_first ? 0 : 2;
    if (i > 2) axis = batch_first ? 1 : 2;  // kept for the gradient
    rule.Output(view.HasOutput(i) ? dims(view.OutputShape(i), axis) : std::vector<int>{});
  }
  return rule.Build();
}

// The products with W and R; the activations count as one each.
Cost LstmCost(const NodeView& view) {
  const Shape& x = view.InputShape(kX);
  const Shape& w = view.InputShape(kW);
  const double rows = static_cast<double>(x.ProductOf(0, 2));
  const double per_row = static_cast<double>(w.ProductOf(0, 2)) *
                         (2.0 * static_cast<double>(w.dim(2) + view.InputShape(kR).dim(2)) + 4.0);
  return {rows * per_row, OperandBytes(view)};
}

// What RNN and GRU have in common.
OpSchema RecurrentSchema(std::string name) {
  return OpSchema::Onnx(std::move(name))
      .Input("X", kFloatTypes)
      .Input("W", kFloatTypes)
      .Learnable()
      .Input("R", kFloatTypes)
      .Learnable()
      .OptionalInput("B", kFloatTypes)
      .Learnable()
      .OptionalInput("sequence_lens", {DType::kInt32})
      .OptionalInput("initial_h", kFloatTypes)
      .OptionalOutput("Y")
      .OptionalOutput("Y_h")
      .OptionalOutput("gates")
      .Attr("activation_alpha", AttributeType::kFloats)
      .Attr("activation_beta", AttributeType::kFloats)
      .Attr("activations", AttributeType::kStrings)
      .Attr("clip", AttributeType::kFloat)
      .Attr("direction", AttributeType::kString)
      .Attr("hidden_size", AttributeType::kInt)
      .Attr("layout", AttributeType::kInt)
      .CostOf(LstmCost);
}

}  // namespace

WEFT_REGISTER_OP(RecurrentSchema("RNN").Infer(InferGates(1)).Gradient(RecurrentGradient(1)));

WEFT_REGISTER_OP(RecurrentSchema("GRU")
                     .Attr("linear_before_reset", AttributeType::kInt)
                     .Infer(InferGates(3))
                     .Gradient(RecurrentGradient(3)));

WEFT_REGISTER_OP(OpSchema::Onnx("LSTM")
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .Input("R", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .OptionalInput("sequence_lens", {DType::kInt32})
                     .OptionalInput("initial_h", kFloatTypes)
                     .OptionalInput("initial_c", kFloatTypes)
                     .OptionalInput("P", kFloatTypes)
                     .Learnable()
                     .OptionalOutput("Y")
                     .OptionalOutput("Y_h")
                     .OptionalOutput("Y_c")
                     .OptionalOutput("gates")
                     .OptionalOutput("cells")
                     .Attr("activation_alpha", AttributeType::kFloats)
                     .Attr("activation_beta", AttributeType::kFloats)
                     .Attr("activations", AttributeType::kStrings)
                     .Attr("clip", AttributeType::kFloat)
                     .Attr("direction", AttributeType::kString)
                     .Attr("hidden_size", AttributeType::kInt)
                     .Attr("input_forget", AttributeType::kInt)
                     .Attr("layout", AttributeType::kInt)
                     .Infer(InferGates(4))
                     .Gradient(RecurrentGradient(4))
                     .Sharding(LstmRule)
                     .CostOf(LstmCost));

}  // namespace weft
