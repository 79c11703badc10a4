#include "training/graph/precision.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/node_bodies.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

struct PrecisionEntry {
  Precision precision;
  const char* name;
  const char* type;
};
constexpr PrecisionEntry kPrecisions[] = {{Precision::kFloat32, "fp32", "float32"},
                                          {Precision::kBfloat16, "bf16", "bfloat16"},
                                          {Precision::kFloat16, "fp16", "float16"}};

// ---- The lists. What is in none of them is computed in float32, above all: Softmax, losses and
// other sums (their error grows with the count), normalizations (they divide by a statistic), Exp,
// Log, Pow and roots (range), LSTM, GRU and RNN (their state is a sum over all steps), Attention
// (its softmax is inside). PyTorch lowers the recurrent ops and attention on GPUs, since kernels
// there keep sums in float32; we lower attention where cuDNN computes it.

// Products with long sums, which the kernels keep in float32.
const std::set<std::string>& LowerOps() {
  static const auto* const kOps = new std::set<std::string>{
      "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ai.weft::MatMul"};
  return *kOps;
}

// One operation per element, of a range that both formats have.
const std::set<std::string>& FollowOps() {
  static const auto* const kOps = new std::set<std::string>{"Abs",
                                                            "Add",
                                                            "AveragePool",
                                                            "Celu",
                                                            "Clip",
                                                            "Div",
                                                            "Dropout",
                                                            "Elu",
                                                            "Erf",
                                                            "Gelu",
                                                            "HardSigmoid",
                                                            "HardSwish",
                                                            "Identity",
                                                            "LeakyRelu",
                                                            "Max",
                                                            "MaxPool",
                                                            "Min",
                                                            "Mul",
                                                            "Neg",
                                                            "PRelu",
                                                            "Relu",
                                                            "Selu",
                                                            "Sigmoid",
                                                            "Sub",
                                                            "Sum",
                                                            "SwiGLU",
                                                            "Swish",
                                                            "Tanh",
                                                            "ThresholdedRelu"};
  return *kOps;
}

// Inputs that have a type of their own, whatever the first one's is.
bool IsOfOwnType(const Node& node, size_t input) {
  return input > 0 && node.domain.empty() && (node.op == "Dropout" || node.op == "Resize");
}

bool IsTensorOf(const ValueType& type, DType dtype) {
  return type.kind == ValueKind::kTensor && type.dtype == dtype;
}

bool IsForwardNode(const Node& node) { return node.phase == Phase::kForward; }

// Attention of query, key and value alone, for its result alone: what libraries compute.
bool IsPlainAttention(const Node& node) {
  const auto is_valid = [](ValueId value) { return value.valid(); };
  return node.domain.empty() && node.op == "Attention" && node.inputs.size() >= 3 &&
         std::none_of(node.inputs.begin() + 3, node.inputs.end(), is_valid) &&
         std::none_of(node.outputs.begin() + 1, node.outputs.end(), is_valid) &&
         !(node.attributes.Float("softcap", 0.0f) > 0) &&
         node.attributes.Int("left_window_size", -1) < 0 &&
         node.attributes.Int("right_window_size", -1) < 0;
}

class Lowering {
 public:
  Lowering(Graph& graph, DType lower, bool lowers_attention)
      : graph_(graph), builder_(graph), lower_(lower), lowers_attention_(lowers_attention) {}

  absl::Status Run(const std::vector<ValueId>& keep);

 private:
  absl::Status Visit(NodeId id);
  PrecisionUse UseOf(const Node& node) const;
  bool IsLowered(ValueId value) const { return lowered_.contains(value); }
  // A weight, or a constant whose numbers the lower type has too: no precision of its own.
  bool IsWeak(ValueId value) const;
  bool Takes(const Node& node, size_t input) const;
  // All activations that the node reads are lower, and there is one.
  bool FollowsLower(const Node& node) const;
  absl::Status LowerInputs(NodeId id);
  absl::Status WidenInputs(NodeId id);
  absl::StatusOr<ValueId> Lowered(ValueId value, NodeId reader);
  absl::StatusOr<ValueId> Widened(ValueId value, NodeId reader);
  ValueId Converted(ValueId value, NodeId reader, DType to);
  absl::Status Infer(NodeId id);

  Graph& graph_;
  GraphBuilder builder_;
  const DType lower_;
  const bool lowers_attention_;
  std::set<ValueId> pinned_;   // stay float32
  std::set<ValueId> lowered_;  // were float32
  std::map<ValueId, ValueId> lower_copies_;
  std::map<ValueId, ValueId> wide_copies_;
  int lowered_products_ = 0;
};

PrecisionUse Lowering::UseOf(const Node& node) const {
  const bool is_pinned = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [this](ValueId output) { return pinned_.contains(output); });
  if (is_pinned) return PrecisionUse::kFloat32;
  return lowers_attention_ && IsPlainAttention(node) ? PrecisionUse::kLower : PrecisionUseOf(node);
}

bool Lowering::IsWeak(ValueId value) const {
  const ValueDef& def = graph_.value(value);
  Tensor tensor = def.constant;
  if (def.source == ValueSource::kVariable) {
    const Variable* const variable = graph_.VariableOf(value);
    if (variable->trainable || !variable->initial.valid()) return true;
    tensor = variable->initial;
  } else if (def.source != ValueSource::kConstant) {
    return false;
  }
  const absl::StatusOr<Tensor> cast = CastTensor(tensor, lower_);
  if (!cast.ok()) return false;
  // -1e9 that masks scores would be minus infinity in float16.
  const absl::StatusOr<std::vector<double>> before = ToDoubles(tensor);
  const absl::StatusOr<std::vector<double>> after = ToDoubles(*cast);
  if (!before.ok() || !after.ok()) return false;
  for (size_t i = 0; i < before->size(); ++i) {
    if (std::isfinite((*before)[i]) && !std::isfinite((*after)[i])) return false;
  }
  return true;
}

// Whether the node could have the lower type at this input.
bool Lowering::Takes(const Node& node, size_t input) const {
  const FormalParameter* const formal = node.schema->FormalInput(static_cast<int>(input));
  if (formal == nullptr) return false;
  const std::vector<DType>& dtypes = formal->dtypes;
  return dtypes.empty() || std::find(dtypes.begin(), dtypes.end(), lower_) != dtypes.end();
}

bool Lowering::FollowsLower(const Node& node) const {
  bool any = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || IsOfOwnType(node, i)) continue;
    if (IsLowered(input)) {
      any = true;
    } else if (IsFloatingPoint(graph_.value(input).type.dtype) && !IsWeak(input)) {
      return false;
    }
  }
  return any;
}

ValueId Lowering::Converted(ValueId value, NodeId reader, DType to) {
  const std::string& name = graph_.value(value).name;
  builder_.set_origin({graph_.node(reader).name, name, false});
  builder_.set_name_prefix(absl::StrCat("precision/", name, "/"));
  return builder_.Op("Cast", {value}, {{"to", static_cast<int64_t>(to)}});
}

absl::StatusOr<ValueId> Lowering::Lowered(ValueId value, NodeId reader) {
  const auto [known, is_new] = lower_copies_.try_emplace(value);
  if (!is_new) return known->second;
  const ValueDef& def = graph_.value(value);
  if (def.source == ValueSource::kConstant) {
    WEFT_ASSIGN_OR_RETURN(Tensor constant, CastTensor(def.constant, lower_));
    known->second = graph_.AddConstant(absl::StrCat("precision/", def.name), std::move(constant));
  } else {
    known->second = Converted(value, reader, lower_);
  }
  WEFT_RETURN_IF_ERROR(builder_.status());
  lowered_.insert(known->second);
  return known->second;
}

absl::StatusOr<ValueId> Lowering::Widened(ValueId value, NodeId reader) {
  const auto [known, is_new] = wide_copies_.try_emplace(value);
  if (!is_new) return known->second;
  known->second = Converted(value, reader, DType::kFloat32);
  WEFT_RETURN_IF_ERROR(builder_.status());
  lower_copies_[known->second] = value;
  return known->second;
}

absl::Status Lowering::LowerInputs(NodeId id) {
  for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
    const ValueId input = graph_.node(id).inputs[i];
    if (!input.valid() || IsOfOwnType(graph_.node(id), i) ||
        !IsTensorOf(graph_.value(input).type, DType::kFloat32)) {
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const ValueId lowered, Lowered(input, id));
    graph_.node(id).inputs[i] = lowered;
  }
  return Infer(id);
}

absl::Status Lowering::WidenInputs(NodeId id) {
  for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
    const ValueId input = graph_.node(id).inputs[i];
    if (!input.valid() || !IsLowered(input)) continue;
    WEFT_ASSIGN_OR_RETURN(const ValueId wide, Widened(input, id));
    graph_.node(id).inputs[i] = wide;
  }
  return absl::OkStatus();
}

// The types of the node's outputs, now that its inputs are lower.
absl::Status Lowering::Infer(NodeId id) {
  std::vector<ValueId> wide;
  for (const ValueId output : graph_.node(id).outputs) {
    if (output.valid() && IsTensorOf(graph_.value(output).type, DType::kFloat32)) {
      wide.push_back(output);
    }
  }
  WEFT_RETURN_IF_ERROR(InferNode(graph_, id));
  for (const ValueId output : wide) {
    if (IsTensorOf(graph_.value(output).type, lower_)) lowered_.insert(output);
  }
  return absl::OkStatus();
}

absl::Status Lowering::Visit(NodeId id) {
  const Node& node = graph_.node(id);
  if (!IsForwardNode(node) || node.schema == nullptr) return absl::OkStatus();
  bool can_lower = true;
  bool has_single = false;
  bool has_lowered = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid() || IsOfOwnType(node, i)) continue;
    const ValueType& type = graph_.value(node.inputs[i]).type;
    const bool is_lowered = IsLowered(node.inputs[i]);
    const bool is_single = IsTensorOf(type, DType::kFloat32);
    has_single = has_single || is_single;
    has_lowered = has_lowered || is_lowered;
    // Other floating types are the model's own choice.
    if (IsFloatingPoint(type.dtype) && !is_single && !is_lowered) can_lower = false;
    if ((is_single || is_lowered) && !Takes(node, i)) can_lower = false;
  }
  if (!has_single && !has_lowered) return absl::OkStatus();
  const PrecisionUse use = can_lower ? UseOf(node) : PrecisionUse::kFloat32;
  if (use == PrecisionUse::kLower) {
    ++lowered_products_;
    // Else its softmax would have the type of its operands.
    if (IsPlainAttention(node)) {
      graph_.node(id).attributes.Set("softmax_precision", static_cast<int64_t>(DType::kFloat32));
    }
    return LowerInputs(id);
  }
  if (use == PrecisionUse::kFollow && FollowsLower(node)) return LowerInputs(id);
  return WidenInputs(id);
}

absl::Status Lowering::Run(const std::vector<ValueId>& keep) {
  pinned_.insert(keep.begin(), keep.end());
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
  for (const NodeId id : order) WEFT_RETURN_IF_ERROR(Visit(id));
  if (lowered_products_ > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there is nothing to compute in ", std::string(DTypeName(lower_)), ": the model has none of ",
      absl::StrJoin(LowerOps(), ", "), " in float32; train it with --precision fp32"));
}

}  // namespace

std::vector<std::string> PrecisionNames() {
  std::vector<std::string> names;
  for (const PrecisionEntry& entry : kPrecisions) names.emplace_back(entry.name);
  return names;
}

std::string_view PrecisionName(Precision precision) {
  for (const PrecisionEntry& entry : kPrecisions) {
    if (entry.precision == precision) return entry.name;
  }
  return "";
}

absl::StatusOr<Precision> ParsePrecision(const std::string& text) {
  for (const PrecisionEntry& entry : kPrecisions) {
    if (text == entry.name || text == entry.type) return entry.precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no precision '", text, "'", DidYouMean(text, PrecisionNames()),
                   "; there are: ", absl::StrJoin(PrecisionNames(), ", ")));
}

PrecisionUse PrecisionUseOf(const Node& node) {
  if (node.schema == nullptr || !BodiesOf(node).empty()) return PrecisionUse::kFloat32;
  const OpSchema& schema = *node.schema;
  if (LowerOps().contains(schema.FullName())) return PrecisionUse::kLower;
  const bool moves = schema.element_use() == ElementUse::kMoves || !schema.aliases().empty();
  if (moves || FollowOps().contains(schema.FullName())) return PrecisionUse::kFollow;
  // A Cast says its type itself.
  return schema.FullName() == "Cast" ? PrecisionUse::kFollow : PrecisionUse::kFloat32;
}

absl::Status LowerPrecision(Graph& graph, DType lower, const std::vector<ValueId>& keep,
                            bool lowers_attention) {
  return Lowering(graph, lower, lowers_attention).Run(keep);
}

}  // namespace weft
