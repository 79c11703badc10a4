// If, Loop, Scan and SequenceMap: ops that run bodies. What a body takes from outside follows the
// op's own inputs (graph/node_bodies.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_bodies.h"
#include "graph/op_schema.h"
#include "ops/axes.h"
#include "ops/defs/control_flow/control_flow_gradient.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status SequenceMapGradient(GradientContext& context);  // of control_flow_gradient.cc
namespace {

// Rounds after which a loop's types must have settled.
constexpr int kMaxRounds = 3;
// Bodies in bodies that are looked into; each may be inferred once per round of those around it.
constexpr int kMaxInferredDepth = 3;

ValueType ScalarType(DType dtype) { return {ValueKind::kTensor, dtype, SymbolicShape(Shape{})}; }

// What holds of a value that is of either type.
ValueType MergeTypes(const ValueType& a, const ValueType& b) {
  ValueType merged = b;
  if (merged.dtype == DType::kInvalid) merged.dtype = a.dtype;
  merged.shape =
      a.kind == b.kind && a.element == b.element ? CommonShape(a.shape, b.shape) : SymbolicShape();
  return merged;
}

absl::StatusOr<NodeBody> BodyOf(InferenceContext& context, const std::string& name) {
  for (const NodeBody& body : BodiesOf(context.node())) {
    if (body.name == name) return body;
  }
  return context.Error(absl::StrCat("it has no body '", name, "'"));
}

// How many bodies are being inferred in each other by this thread.
class DepthCount {
 public:
  DepthCount() { ++depth(); }
  ~DepthCount() { --depth(); }
  DepthCount(const DepthCount&) = delete;
  DepthCount& operator=(const DepthCount&) = delete;
  bool is_too_deep() const { return depth() > kMaxInferredDepth; }

 private:
  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }
};

std::vector<ValueType> OutputTypes(const Graph& graph, bool with_shapes) {
  std::vector<ValueType> types;
  for (const ValueId id : graph.outputs()) {
    types.push_back(graph.value(id).type);
    if (!with_shapes) types.back().shape = SymbolicShape();
  }
  return types;
}

// The types of the body's outputs for these types of its own inputs. Where the body does not fit
// them, shapes are unknown: it counts when it runs.
absl::StatusOr<std::vector<ValueType>> InferBody(InferenceContext& context, const NodeBody& body,
                                                 const std::vector<ValueType>& inputs) {
  if (body.num_inputs() != static_cast<int>(inputs.size())) {
    return context.Error(absl::StrCat("its body '", body.name, "' has ", body.num_inputs(),
                                      " inputs, expected ", inputs.size()));
  }
  const DepthCount depth;
  if (depth.is_too_deep()) return OutputTypes(*body.graph, /*with_shapes=*/false);
  Graph graph = body.graph->Clone();
  for (int i = 0; i < body.num_inputs() + body.captures; ++i) {
    const int outer = body.first_capture + i - body.num_inputs();
    const bool own = i < body.num_inputs();
    if (!own && !context.HasInput(outer)) continue;
    graph.value(graph.inputs()[i]).type = own ? inputs[i] : context.InputType(outer);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  for (const NodeId id : order) {
    if (graph.node(id).schema != nullptr && InferNode(graph, id).ok()) continue;
    for (const ValueId output : graph.node(id).outputs) {
      if (output.valid()) graph.value(output).type.shape = SymbolicShape();
    }
  }
  return OutputTypes(graph, /*with_shapes=*/true);
}

absl::Status CheckOutputs(InferenceContext& context, size_t made, const std::string& by) {
  if (static_cast<size_t>(context.num_outputs()) <= made) return absl::OkStatus();
  return context.Error(
      absl::StrCat("it has ", context.num_outputs(), " outputs, but ", by, " makes ", made));
}

// ---- If

absl::Status InferIf(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody then_body, BodyOf(context, "then_branch"));
  WEFT_ASSIGN_OR_RETURN(const NodeBody else_body, BodyOf(context, "else_branch"));
  WEFT_ASSIGN_OR_RETURN(std::vector<ValueType> types, InferBody(context, then_body, {}));
  WEFT_RETURN_IF_ERROR(CheckOutputs(context, types.size(), "then_branch"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> others, InferBody(context, else_body, {}));
  WEFT_RETURN_IF_ERROR(CheckOutputs(context, others.size(), "else_branch"));
  const Tensor* condition = context.InputValue(0);
  const bool known =
      condition != nullptr && condition->dtype() == DType::kBool && condition->num_elements() == 1;
  for (int i = 0; i < context.num_outputs(); ++i) {
    ValueType type = MergeTypes(types[i], others[i]);
    if (known) type = condition->data<bool>()[0] ? types[i] : others[i];
    context.SetOutput(i, std::move(type));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("If")
                     .Input("cond", {DType::kBool})
                     .VariadicInput("captures")
                     .AnyKind()
                     .VariadicOutput("outputs")
                     .Attr("then_branch", AttributeType::kGraph, /*required=*/true)
                     .Attr("else_branch", AttributeType::kGraph, /*required=*/true)
                     .Attr(CapturesAttribute("then_branch"), AttributeType::kStrings)
                     .Attr(CapturesAttribute("else_branch"), AttributeType::kStrings)
                     .Infer(InferIf)
                     .Gradient(IfGradient));

// ---- Loop

// A scan output has one more axis, the round, at `axis`.
ValueType StackedType(const ValueType& type, int64_t axis, const Dim& length) {
  ValueType stacked = type;
  if (!type.shape.has_rank()) return stacked;
  std::vector<Dim> dims = type.shape.dims();
  const int64_t rank = static_cast<int64_t>(dims.size()) + 1;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return {ValueKind::kTensor, type.dtype, SymbolicShape()};
  dims.insert(dims.begin() + axis, length);
  stacked.shape = SymbolicShape(std::move(dims));
  return stacked;
}

// The types of the body's outputs when `carried` (whose types settle here: what is carried on may
// change from round to round) follow `fixed` and come before `rest` among its inputs. The carried
// outputs begin at `first`.
absl::StatusOr<std::vector<ValueType>> SettleTypes(InferenceContext& context, const NodeBody& body,
                                                   const std::vector<ValueType>& fixed,
                                                   std::vector<ValueType>& carried,
                                                   const std::vector<ValueType>& rest,
                                                   size_t first) {
  std::vector<ValueType> outputs;
  for (int round = 0; round <= kMaxRounds; ++round) {
    std::vector<ValueType> inputs = fixed;
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    inputs.insert(inputs.end(), rest.begin(), rest.end());
    WEFT_ASSIGN_OR_RETURN(outputs, InferBody(context, body, inputs));
    if (outputs.size() < first + carried.size()) {
      return context.Error(absl::StrCat("its body makes ", outputs.size(),
                                        " values, expected at least ", first + carried.size()));
    }
    bool settled = true;
    for (size_t i = 0; i < carried.size(); ++i) {
      ValueType merged = MergeTypes(carried[i], outputs[first + i]);
      if (round == kMaxRounds - 1) merged.shape = SymbolicShape();
      settled = settled && merged.ToString() == carried[i].ToString();
      carried[i] = std::move(merged);
    }
    if (settled) break;
  }
  return outputs;
}

bool IsTrue(const Tensor& tensor) {
  return tensor.dtype() == DType::kBool && tensor.num_elements() == 1 && tensor.data<bool>()[0];
}

// How many rounds a loop has: M, where that is known and nothing ends it before.
Dim RoundsOf(const InferenceContext& context, const NodeBody& body, int own) {
  if (own < 1 || !context.HasInput(0) || body.graph->outputs().empty()) return Dim();
  const Tensor* rounds = context.InputValue(0);
  if (rounds == nullptr || rounds->dtype() != DType::kInt64 || rounds->num_elements() != 1) {
    return Dim();
  }
  if (own > 1 && context.HasInput(1)) {
    const Tensor* start = context.InputValue(1);
    if (start == nullptr || !IsTrue(*start)) return Dim();
  }
  const Graph& graph = *body.graph;
  ValueId goes_on = graph.outputs()[0];
  while (graph.value(goes_on).source == ValueSource::kNode) {
    const Node& producer = graph.node(graph.value(goes_on).producer);
    if (!producer.domain.empty() || producer.op != "Identity") break;
    goes_on = producer.inputs[0];
  }
  const ValueDef& value = graph.value(goes_on);
  const bool handed_on = body.num_inputs() > 1 && goes_on == graph.inputs()[1];
  const bool always = value.source == ValueSource::kConstant && IsTrue(value.constant);
  const int64_t count = rounds->data<int64_t>()[0];
  return (handed_on || always) && count >= 0 && count <= kMaxDim ? Dim(count) : Dim();
}

absl::Status InferLoop(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody body, BodyOf(context, "body"));
  const int own = NumOwnInputs(context.node());
  std::vector<ValueType> carried;
  for (int i = 2; i < own; ++i) {
    if (!context.HasInput(i)) return context.Error(absl::StrCat("input ", i, " is missing"));
    carried.push_back(context.InputType(i));
  }
  const std::vector<ValueType> fixed = {ScalarType(DType::kInt64), ScalarType(DType::kBool)};
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> outputs,
                        SettleTypes(context, body, fixed, carried, {}, 1));
  WEFT_RETURN_IF_ERROR(CheckOutputs(context, outputs.size() - 1, "its body"));
  const Dim rounds = RoundsOf(context, body, own);
  for (int i = 0; i < context.num_outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    context.SetOutput(i,
                      at < carried.size() ? carried[at] : StackedType(outputs[at + 1], 0, rounds));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Loop")
                     .OptionalInput("M")
                     .AnyKind()  // a capture, where M and cond are left out
                     .OptionalInput("cond")
                     .AnyKind()
                     .VariadicInput("v_initial")
                     .AnyKind()
                     .VariadicOutput("v_final_and_scan_outputs")
                     .Attr("body", AttributeType::kGraph, /*required=*/true)
                     .Attr(CapturesAttribute("body"), AttributeType::kStrings)
                     .Infer(InferLoop)
                     .Gradient(LoopGradient));

// ---- Scan

absl::Status InferScan(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody body, BodyOf(context, "body"));
  const int own = NumOwnInputs(context.node());
  const int64_t scanned = context.attributes().Int("num_scan_inputs", 0);
  if (scanned < 1 || scanned > own) {
    return context.Error(absl::StrCat("attribute num_scan_inputs is ", scanned,
                                      ", expected 1 to the number of inputs, ", own));
  }
  const int states = own - static_cast<int>(scanned);
  const std::vector<int64_t> axes = context.attributes().Ints("scan_input_axes");
  std::vector<ValueType> carried;
  std::vector<ValueType> slices;
  Dim length;
  for (int i = 0; i < own; ++i) {
    if (!context.HasInput(i)) return context.Error(absl::StrCat("input ", i, " is missing"));
    ValueType type = context.InputType(i);
    if (i < states) {
      carried.push_back(type);
      continue;
    }
    if (type.shape.has_rank()) {
      const int64_t given = NumberAt(axes, static_cast<size_t>(i - states));
      const absl::StatusOr<int> axis = NormalizeAxis(given, type.shape.rank());
      if (!axis.ok()) {
        return context.Error(absl::StrCat("input ", i, " of shape ", type.shape.ToString(),
                                          " has no axis ", given, " to scan"));
      }
      std::vector<Dim> dims = type.shape.dims();
      if (dims[*axis].is_known() || !length.is_known()) length = dims[*axis];
      dims.erase(dims.begin() + *axis);
      type.shape = SymbolicShape(std::move(dims));
    }
    slices.push_back(std::move(type));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> outputs,
                        SettleTypes(context, body, {}, carried, slices, 0));
  WEFT_RETURN_IF_ERROR(CheckOutputs(context, outputs.size(), "its body"));
  const std::vector<int64_t> output_axes = context.attributes().Ints("scan_output_axes");
  for (int i = 0; i < context.num_outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    context.SetOutput(
        i, i < states
               ? carried[at]
               : StackedType(outputs[at], NumberAt(output_axes, at - carried.size()), length));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Scan")
                     .VariadicInput("initial_state_and_scan_inputs")
                     .AnyKind()
                     .VariadicOutput("final_state_and_scan_outputs")
                     .Attr("body", AttributeType::kGraph, /*required=*/true)
                     .Attr("num_scan_inputs", AttributeType::kInt, /*required=*/true)
                     .Attr("scan_input_axes", AttributeType::kInts)
                     .Attr("scan_input_directions", AttributeType::kInts)
                     .Attr("scan_output_axes", AttributeType::kInts)
                     .Attr("scan_output_directions", AttributeType::kInts)
                     .Attr(CapturesAttribute("body"), AttributeType::kStrings)
                     .Infer(InferScan)
                     .Gradient(ScanGradient));

// Scan as operator set 8 had it: every input has a batch axis 0 and scan inputs have the sequence
// on axis 1; input 0, which may be omitted, says how long each sequence of the batch is. Of
// outputs, only dtypes are known ahead.
absl::Status InferBatchedScan(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody body, BodyOf(context, "body"));
  for (int i = 0; i < context.num_outputs(); ++i) {
    const std::vector<ValueId>& made = body.graph->outputs();
    if (i >= static_cast<int>(made.size())) return CheckOutputs(context, made.size(), "its body");
    context.SetOutput(i, body.graph->value(made[i]).type.dtype, SymbolicShape());
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Weft("BatchedScan")
                     .OptionalInput("sequence_lens", {DType::kInt64})
                     .VariadicInput("initial_state_and_scan_inputs")
                     .AnyKind()
                     .VariadicOutput("final_state_and_scan_outputs")
                     .Attr("body", AttributeType::kGraph, /*required=*/true)
                     .Attr("num_scan_inputs", AttributeType::kInt, /*required=*/true)
                     .Attr("directions", AttributeType::kInts)
                     .Attr(CapturesAttribute("body"), AttributeType::kStrings)
                     .Infer(InferBatchedScan)
                     .GradientMissing("Scan of operator set 8 is for inference; newer ones train"));

// ---- SequenceMap

absl::Status InferSequenceMap(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const NodeBody body, BodyOf(context, "body"));
  std::vector<ValueType> elements;
  for (int i = 0; i < NumOwnInputs(context.node()); ++i) {
    if (!context.HasInput(i)) return context.Error(absl::StrCat("input ", i, " is missing"));
    ValueType type = context.InputType(i);
    type.kind = ValueKind::kTensor;
    elements.push_back(std::move(type));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> outputs, InferBody(context, body, elements));
  WEFT_RETURN_IF_ERROR(CheckOutputs(context, outputs.size(), "its body"));
  for (int i = 0; i < context.num_outputs(); ++i) {
    ValueType type = outputs[static_cast<size_t>(i)];
    type.kind = ValueKind::kSequence;
    context.SetOutput(i, std::move(type));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("SequenceMap")
                     .Input("input_sequence")
                     .AnyKind()
                     .VariadicInput("additional_inputs")
                     .AnyKind()
                     .VariadicOutput("out_sequence")
                     .Attr("body", AttributeType::kGraph, /*required=*/true)
                     .Attr(CapturesAttribute("body"), AttributeType::kStrings)
                     .Infer(InferSequenceMap)
                     .Gradient(SequenceMapGradient));

}  // namespace
}  // namespace weft
