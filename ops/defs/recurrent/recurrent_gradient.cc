// The gradients of RNN, GRU and LSTM.
//
// ai.weft::LstmGrad, GruGrad and RnnGrad go backward step by step, and give the gradients of the
// gates' arguments at all steps and the states before them. What depends on these over all steps at
// once is products and sums of their own: dX, dW, dR, dB, dP. The forward ops keep what this needs
// in outputs that ONNX does not have: of the gates, and of LSTM's cells, for every direction, row
// of X and gate.
#include "ops/defs/recurrent/recurrent_gradient.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/recurrent/recurrent_operands.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The operands of the gradient ops.
enum GradInputs {
  kDy,
  kDfinalH,
  kDfinalC,
  kGradR,
  kGradP,
  kGradLengths,
  kGradInitialH,
  kGradInitialC,
  kGradY,
  kGradGates,
  kGradCells,
  kGradInputs
};
enum GradOutputs { kDgates, kPreviousH, kDinitialH, kPreviousC, kDinitialC };
// In the place of the last two, GRU's: what the gates' arguments got from the state, and the state
// that the candidate saw.
enum GruGradOutputs { kDfromState = 3, kSeen = 4 };

std::string GradOp(int64_t gate_count) {
  return gate_count == 4 ? "LstmGrad" : gate_count == 3 ? "GruGrad" : "RnnGrad";
}

// Builds the gradients of one node.
class RecurrentGradientBuilder {
 public:
  RecurrentGradientBuilder(GradientContext& context, int64_t gate_count)
      : context_(context), g_(context.builder()), gate_count_(gate_count) {}

  absl::Status Build() {
    for (int i = 0; i < 3; ++i) {
      if (i < (is_lstm() ? 3 : 2)) arriving_[i] = context_.OutputGradient(i);
    }
    if (!arriving_[0].valid() && !arriving_[1].valid() && !arriving_[2].valid()) {
      return absl::OkStatus();
    }
    const ValueId y = context_.RequireOutput(0, "/Y");
    const ValueId gates = context_.RequireOutput(is_lstm() ? 3 : 2, "/gates");
    const ValueId cells = is_lstm() ? context_.RequireOutput(4, "/cells") : kNoValue;
    if (!y.valid() || !gates.valid() || (is_lstm() && !cells.valid())) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(ReadSizes());
    AddSteps(y, gates, cells);
    WEFT_RETURN_IF_ERROR(g_.status());
    SetInputs(cells);
    return g_.status();
  }

 private:
  bool is_lstm() const { return gate_count_ == 4; }
  bool is_gru() const { return gate_count_ == 3; }
  const Attributes& attributes() const { return context_.node().attributes; }
  bool is_linear() const { return is_gru() && attributes().Int("linear_before_reset", 0) != 0; }

  absl::Status ReadSizes() {
    const SymbolicShape& r = g_.type(context_.Input(kR)).shape;
    if (!r.has_rank() || r.rank() != 3 || !r.dim(2).is_known()) {
      return absl::UnimplementedError(
          absl::StrCat("node '", context_.node().name, "': the gradient of ", context_.node().op,
                       " needs the shape of R, which is ", r.ToString()));
    }
    hidden_ = r.dim(2).size();
    directions_ = attributes().String("direction", "forward") == "bidirectional" ? 2 : 1;
    return absl::OkStatus();
  }

  // The steps, backward.
  void AddSteps(ValueId y, ValueId gates, ValueId cells) {
    std::vector<ValueId> inputs(kGradInputs, kNoValue);
    for (int i = 0; i < 3; ++i) inputs[kDy + i] = arriving_[i];
    inputs[kGradR] = context_.Input(kR);
    inputs[kGradP] = is_lstm() ? context_.Input(kP) : kNoValue;
    inputs[kGradLengths] = context_.Input(kSequenceLens);
    inputs[kGradInitialH] = context_.Input(kInitialH);
    inputs[kGradInitialC] = is_lstm() ? context_.Input(kInitialC) : kNoValue;
    inputs[kGradY] = y;
    inputs[kGradGates] = gates;
    inputs[kGradCells] = cells;
    while (!inputs.back().valid()) inputs.pop_back();
    const bool needs_r = context_.NeedsInputGradient(kR);
    std::vector<bool> wanted = {true, needs_r, context_.NeedsInputGradient(kInitialH)};
    if (is_lstm()) {
      wanted.push_back(context_.NeedsInputGradient(kP));
      wanted.push_back(context_.NeedsInputGradient(kInitialC));
    } else if (is_gru()) {
      wanted.push_back(is_linear() && (needs_r || context_.NeedsInputGradient(kB)));
      wanted.push_back(!is_linear() && needs_r);
    }
    Attributes copied;
    for (const char* name : {"activation_alpha", "activation_beta", "activations", "clip",
                             "direction", "input_forget", "layout", "linear_before_reset"}) {
      const Attribute* attribute = attributes().Find(name);
      if (attribute != nullptr) copied.Set(name, *attribute);
    }
    steps_ = g_.Ops(std::string(kWeftDomain), GradOp(gate_count_), std::move(inputs),
                    std::move(copied), wanted);
  }

  void SetInputs(ValueId cells) {
    if (context_.NeedsInputGradient(kX)) context_.SetInputGradient(kX, InputGradient());
    if (context_.NeedsInputGradient(kW)) context_.SetInputGradient(kW, WeightGradient());
    if (context_.NeedsInputGradient(kR)) context_.SetInputGradient(kR, RecurrenceGradient());
    if (context_.NeedsInputGradient(kB)) {
      const ValueId from_input = SumOfRows(steps_[kDgates]);
      const ValueId from_state = is_linear() ? SumOfRows(steps_[kDfromState]) : from_input;
      context_.SetInputGradient(kB,
                                g_.Op("Concat", {from_input, from_state}, {{"axis", int64_t{1}}}));
    }
    if (context_.NeedsInputGradient(kInitialH)) {
      context_.SetInputGradient(kInitialH, steps_[kDinitialH]);
    }
    if (!is_lstm()) return;
    if (context_.NeedsInputGradient(kInitialC)) {
      context_.SetInputGradient(kInitialC, steps_[kDinitialC]);
    }
    if (context_.NeedsInputGradient(kP)) context_.SetInputGradient(kP, PeepholeGradient(cells));
  }

  // [directions, rows of X, width] -> [directions, width]
  ValueId SumOfRows(ValueId rows) {
    return g_.Op("ReduceSum", {rows, g_.Ints({1, 2})}, {{"keepdims", int64_t{0}}});
  }

  // One value per direction, without that axis.
  std::vector<ValueId> ByDirection(ValueId value) {
    std::vector<ValueId> parts = {value};
    if (directions_ == 2) {
      parts = g_.Ops("", "Split", {value, g_.Ints({1, 1})}, {{"axis", int64_t{0}}}, {true, true});
    }
    for (ValueId& part : parts) part = g_.Op("Squeeze", {part, g_.Ints({0})});
    return parts;
  }

  ValueId Stacked(std::vector<ValueId> parts) {
    for (ValueId& part : parts) part = g_.Op("Unsqueeze", {part, g_.Ints({0})});
    return parts.size() == 1 ? parts[0] : g_.Op("Concat", parts, {{"axis", int64_t{0}}});
  }

  ValueId InputGradient() {
    const std::vector<ValueId> dgates = ByDirection(steps_[kDgates]);
    const std::vector<ValueId> w = ByDirection(context_.Input(kW));
    std::vector<ValueId> parts;
    for (int64_t d = 0; d < directions_; ++d) {
      parts.push_back(g_.Op("MatMul", {dgates[d], w[d]}));
    }
    return parts.size() == 1 ? parts[0] : g_.Op("Add", parts);
  }

  // sum over rows of left[row, k] right[row, n], per direction.
  ValueId WeightGradient() {
    std::vector<ValueId> parts;
    for (const ValueId dgates : ByDirection(steps_[kDgates])) {
      parts.push_back(g_.WeftOp("MatMulReduceBatch", {dgates, context_.Input(kX)}));
    }
    return Stacked(std::move(parts));
  }

  ValueId RecurrenceGradient() {
    const std::vector<ValueId> dgates =
        ByDirection(is_linear() ? steps_[kDfromState] : steps_[kDgates]);
    const std::vector<ValueId> previous = ByDirection(steps_[kPreviousH]);
    std::vector<ValueId> parts;
    if (!is_gru() || is_linear()) {
      for (int64_t d = 0; d < directions_; ++d) {
        parts.push_back(g_.WeftOp("MatMulReduceBatch", {dgates[d], previous[d]}));
      }
      return Stacked(std::move(parts));
    }
    // The candidate saw another state than the other gates.
    const std::vector<ValueId> seen = ByDirection(steps_[kSeen]);
    for (int64_t d = 0; d < directions_; ++d) {
      const std::vector<ValueId> split =
          g_.Ops("", "Split", {dgates[d], g_.Ints({2 * hidden_, hidden_})}, {{"axis", int64_t{2}}},
                 {true, true});
      parts.push_back(g_.Op("Concat",
                            {g_.WeftOp("MatMulReduceBatch", {split[0], previous[d]}),
                             g_.WeftOp("MatMulReduceBatch", {split[1], seen[d]})},
                            {{"axis", int64_t{0}}}));
    }
    return Stacked(std::move(parts));
  }

  // P is [input, output, forget]; gates are in the order input, output, forget, candidate. The
  // output gate sees the cell after the step.
  ValueId PeepholeGradient(ValueId cells) {
    const std::vector<ValueId> dgates =
        g_.Ops("", "Split", {steps_[kDgates], g_.Ints({hidden_, hidden_, hidden_, hidden_})},
               {{"axis", int64_t{3}}}, {true, true, true, true});
    std::vector<ValueId> sums;
    for (int i = 0; i < 3; ++i) {
      const ValueId seen = i == 1 ? cells : steps_[kPreviousC];
      sums.push_back(SumOfRows(g_.Op("Mul", {dgates[i], seen})));
    }
    return g_.Op("Concat", sums, {{"axis", int64_t{1}}});
  }

  GradientContext& context_;
  GraphBuilder& g_;
  const int64_t gate_count_;
  ValueId arriving_[3];
  int64_t hidden_ = 0;
  int64_t directions_ = 1;
  std::vector<ValueId> steps_;
};

// ---- The steps, backward.

absl::Status InferSteps(InferenceContext& context, int64_t gate_count) {
  std::vector<int> floats = {kGradR, kGradY, kGradGates};
  for (const int i : {kDy, kDfinalH, kDfinalC, kGradP, kGradInitialH, kGradInitialC, kGradCells}) {
    if (context.HasInput(i)) floats.push_back(i);
  }
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  const DType dtype = context.InputType(kGradR).dtype;
  const SymbolicShape& gates = context.InputShape(kGradGates);
  const SymbolicShape& r = context.InputShape(kGradR);
  if (!gates.has_rank() || !r.has_rank()) {
    for (int i = 0; i < context.num_outputs(); ++i) {
      if (context.HasOutput(i)) context.SetOutput(i, dtype, SymbolicShape());
    }
    return absl::OkStatus();
  }
  if (gates.rank() != 4 || r.rank() != 3) {
    return context.Error(absl::StrCat("gates are ", gates.ToString(), " and R is ", r.ToString(),
                                      ", expected rank 4 and 3"));
  }
  const Dim hidden = r.dim(2);
  const Dim all = hidden.is_known() ? Dim(gate_count * hidden.size()) : Dim();
  const bool batch_first = context.attributes().Int("layout", 0) == 1;
  const Dim batch = gates.dim(batch_first ? 1 : 2);
  const auto rows = [&](const Dim& width) {
    return SymbolicShape({gates.dim(0), gates.dim(1), gates.dim(2), width});
  };
  const SymbolicShape state = batch_first ? SymbolicShape({batch, gates.dim(0), hidden})
                                          : SymbolicShape({gates.dim(0), batch, hidden});
  const bool is_gru = gate_count == 3;
  const SymbolicShape shapes[] = {rows(all), rows(hidden), state, rows(is_gru ? all : hidden),
                                  is_gru ? rows(hidden) : state};
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, dtype, shapes[i]);
  }
  return absl::OkStatus();
}

// The product with R; the gates count as one each.
Cost StepsCost(const NodeView& view) {
  const Shape& gates = view.InputShape(kGradGates);
  const Shape& r = view.InputShape(kGradR);
  const double rows = static_cast<double>(gates.ProductOf(1, 3));
  return {rows * static_cast<double>(r.num_elements()) * 2.0 +
              8.0 * static_cast<double>(gates.num_elements()),
          OperandBytes(view)};
}

OpSchema StepsSchema(int64_t gate_count) {
  OpSchema schema = OpSchema::Weft(GradOp(gate_count)).GradientMissing("part of a gradient");
  schema.OptionalInput("dY", kFloatTypes)
      .OptionalInput("dY_h", kFloatTypes)
      .OptionalInput("dY_c", kFloatTypes)
      .Input("R", kFloatTypes)
      .OptionalInput("P", kFloatTypes)
      .OptionalInput("sequence_lens", {DType::kInt32})
      .OptionalInput("initial_h", kFloatTypes)
      .OptionalInput("initial_c", kFloatTypes)
      .Input("Y", kFloatTypes)
      .Input("gates", kFloatTypes)
      .OptionalInput("cells", kFloatTypes)
      .Output("dGates")
      .OptionalOutput("previous_h")
      .OptionalOutput("dInitial_h");
  if (gate_count == 4) schema.OptionalOutput("previous_c").OptionalOutput("dInitial_c");
  if (gate_count == 3) schema.OptionalOutput("dFromState").OptionalOutput("seen");
  if (gate_count == 4) schema.Attr("input_forget", AttributeType::kInt);
  if (gate_count == 3) schema.Attr("linear_before_reset", AttributeType::kInt);
  return schema.Attr("activation_alpha", AttributeType::kFloats)
      .Attr("activation_beta", AttributeType::kFloats)
      .Attr("activations", AttributeType::kStrings)
      .Attr("clip", AttributeType::kFloat)
      .Attr("direction", AttributeType::kString)
      .Attr("layout", AttributeType::kInt)
      .Infer([gate_count](InferenceContext& context) { return InferSteps(context, gate_count); })
      .CostOf(StepsCost);
}

WEFT_REGISTER_OP(StepsSchema(4));
WEFT_REGISTER_OP(StepsSchema(3));
WEFT_REGISTER_OP(StepsSchema(1));

}  // namespace

GradientFn RecurrentGradient(int64_t gate_count) {
  return [gate_count](GradientContext& context) {
    return RecurrentGradientBuilder(context, gate_count).Build();
  };
}

}  // namespace weft
