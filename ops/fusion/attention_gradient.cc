#include "ops/fusion/attention_gradient.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The places of Attention's operands (its first three inputs are query, key and value).
constexpr int kAttentionScores = 3;
constexpr int64_t kScoresAreProbabilities = 3;

std::map<DeviceKind, DeviceTakesAttention>& TakersOfDevices() {
  static auto* const takers = new std::map<DeviceKind, DeviceTakesAttention>();
  return *takers;
}

absl::Status InferAttentionWithSums(InferenceContext& context) {
  const SymbolicShape& query = context.InputShape(0);
  const SymbolicShape& value = context.InputShape(2);
  const DType dtype = context.InputType(0).dtype;
  const int64_t heads = context.attributes().Int("q_num_heads", 1);
  const int64_t kv_heads = context.attributes().Int("kv_num_heads", 1);
  const auto q = query.ToConcrete();
  const auto v = value.ToConcrete();
  if (!q || !v || q->rank() != v->rank() || (q->rank() != 3 && q->rank() != 4)) {
    return context.Error("its operands are not tensors of known shapes and rank 3 or 4");
  }
  if (heads < 1 || kv_heads < 1 || v->dims().back() % kv_heads != 0) {
    return context.Error(
        absl::StrCat("it has ", heads, " heads of queries and ", kv_heads, " of keys"));
  }
  const bool packed = q->rank() == 3;
  const int64_t rows = q->dim(packed ? 1 : 2);
  const Shape y = packed ? Shape{q->dim(0), rows, heads * (v->dim(2) / kv_heads)}
                         : Shape{q->dim(0), q->dim(1), rows, v->dim(3)};
  context.SetOutput(0, dtype, SymbolicShape(y));
  context.SetOutput(1, DType::kFloat32, SymbolicShape(Shape{q->dim(0), heads, rows}));
  return absl::OkStatus();
}

absl::Status InferAttentionGrad(InferenceContext& context) {
  for (const int i : {kGradOfQuery, kGradOfKey, kGradOfValue}) {
    if (i < context.num_outputs() && context.HasOutput(i)) {
      context.SetOutput(i, context.InputType(kGradQuery + i));
    }
  }
  return absl::OkStatus();
}

OpSchema* WithAttributes(OpSchema schema) {
  schema.Attr("is_causal", AttributeType::kInt, /*required=*/true)
      .Attr("scale", AttributeType::kFloat, /*required=*/true)
      .Attr("q_num_heads", AttributeType::kInt, /*required=*/true)
      .Attr("kv_num_heads", AttributeType::kInt, /*required=*/true)
      .NoGradient("made after differentiation");
  return new OpSchema(std::move(schema));
}

Attributes AttributesOf(const AttentionForm& form) {
  return {{"is_causal", int64_t{form.causal}},
          {"scale", form.scale},
          {"q_num_heads", form.q_heads},
          {"kv_num_heads", form.kv_heads}};
}

bool HasPlainAttributes(const Node& node) {
  return !(node.attributes.Float("softcap", 0.0f) > 0) &&
         node.attributes.Int("left_window_size", -1) < 0 &&
         node.attributes.Int("right_window_size", -1) < 0;
}

// Q, K and V are all that it reads.
bool ReadsOperandsAlone(const Node& node) {
  return node.inputs.size() >= 3 && node.inputs[0].valid() && node.inputs[1].valid() &&
         node.inputs[2].valid() &&
         std::none_of(node.inputs.begin() + 3, node.inputs.end(),
                      [](ValueId input) { return input.valid(); });
}

bool WantsOutput(const Node& node, size_t i) {
  return i < node.outputs.size() && node.outputs[i].valid();
}

// The nodes of a gradient.
struct FoundGradient {
  AttentionForm form;
  NodeId again;                 // Attention, for its probabilities
  std::vector<NodeId> nodes;    // that become one
  std::vector<NodeId> layouts;  // of operands: they go where nothing else reads them
  ValueId dy;
  ValueId gradients[3];  // of Q, K and V; kNoValue where not wanted
  NodeId seat;
};

// Where Y is in memory still when the gradient is computed.
struct LivingForward {
  NodeId node;  // the forward Attention; invalid where there is none
  NodeId swap;  // its Transpose, where that of Y lives and Y does not
};

class GradientMatcher {
 public:
  GradientMatcher(const Graph& graph, const std::set<std::string>& kept,
                  const std::vector<int>& colors)
      : graph_(graph), colors_(colors), uses_(graph.BuildUses()) {
    needed_.resize(graph.value_capacity());
    for (const ValueId output : graph.outputs()) needed_[output.value] = true;
    for (const Variable& variable : graph.variables()) {
      if (variable.update.valid()) needed_[variable.update.value] = true;
    }
    for (const std::string& name : kept) {
      if (const auto value = graph.FindValue(name)) needed_[value->value] = true;
    }
  }

  std::optional<FoundGradient> At(NodeId id) {
    found_ = {};
    softmax_ = values_ = NodeId();
    found_.again = id;
    if (!ReadForm(graph_.node(id)) || !MatchScores() || !MatchValues() || !MatchProducts() ||
        !FindSeat()) {
      return std::nullopt;
    }
    return found_;
  }

  // The forward node of the same attention, where its Y or a Transpose of it lives until then.
  LivingForward ForwardOf(const FoundGradient& found) const {
    const Node& again = graph_.node(found.again);
    if (IsNeeded(again.outputs[0])) return {};
    for (const Graph::Use& use : uses_[again.inputs[0].value]) {
      const Node& node = graph_.node(use.node);
      const bool is_same = use.input_index == 0 && node.id < found.again && node.domain.empty() &&
                           node.op == "Attention" && node.stage == again.stage &&
                           node.phase == Phase::kForward && ReadsOperandsAlone(node) &&
                           node.inputs[1] == again.inputs[1] && node.inputs[2] == again.inputs[2] &&
                           SaysTheSame(node, again);
      if (!is_same || !WantsOutput(node, 0) || WantsOutput(node, 1) || WantsOutput(node, 2) ||
          WantsOutput(node, kAttentionScores)) {
        continue;
      }
      if (LivesUntil(again, node.outputs[0])) return {node.id, NodeId()};
      for (const Graph::Use& reader : uses_[node.outputs[0].value]) {
        const Node& swap = graph_.node(reader.node);
        const bool turns = swap.domain.empty() && swap.op == "Transpose" &&
                           swap.phase == Phase::kForward && swap.stage == again.stage &&
                           swap.id < again.id && swap.attributes.Has("perm");
        if (turns && LivesUntil(again, swap.outputs[0])) return {node.id, swap.id};
      }
    }
    return {};
  }

  bool IsUnused(ValueId value) const { return uses_[value.value].empty() && !IsNeeded(value); }

 private:
  const ValueType& TypeOf(ValueId value) const { return graph_.value(value).type; }
  bool IsNeeded(ValueId value) const { return needed_[value.value]; }
  // Whether a node of that phase reads the value, or what a Reshape makes of it: the same memory.
  bool LivesUntil(const Node& again, ValueId value) const {
    const auto& readers = uses_[value.value];
    return std::any_of(readers.begin(), readers.end(), [&](const Graph::Use& use) {
      const Node& reader = graph_.node(use.node);
      if (reader.phase == again.phase) return true;
      return reader.domain.empty() && reader.op == "Reshape" && use.input_index == 0 &&
             reader.stage == again.stage && LivesUntil(again, reader.outputs[0]);
    });
  }

  static bool SaysTheSame(const Node& a, const Node& b) {
    const auto without_mode = [](Attributes attributes) {
      attributes.Erase("qk_matmul_output_mode");
      return attributes;
    };
    return without_mode(a.attributes).Equals(without_mode(b.attributes));
  }

  bool ReadForm(const Node& node) {
    if (!node.domain.empty() || node.op != "Attention" || !ReadsOperandsAlone(node) ||
        !HasPlainAttributes(node) || !WantsOutput(node, 0) || WantsOutput(node, 1) ||
        WantsOutput(node, 2) || !WantsOutput(node, kAttentionScores) ||
        node.attributes.Int("qk_matmul_output_mode", 0) != kScoresAreProbabilities) {
      return false;
    }
    AttentionForm& form = found_.form;
    form.dtype = TypeOf(node.inputs[0]).dtype;
    if (form.dtype != DType::kFloat16 && form.dtype != DType::kBfloat16) return false;
    Shape* const shapes[] = {&form.query, &form.key, &form.value, &form.result};
    for (int i = 0; i < 4; ++i) {
      const ValueType& type = TypeOf(i < 3 ? node.inputs[i] : node.outputs[0]);
      const std::optional<Shape> shape = type.shape.ToConcrete();
      if (type.dtype != form.dtype || !shape || shape->num_elements() == 0) return false;
      if ((shape->rank() != 3 && shape->rank() != 4) ||
          (i > 0 && shape->rank() != shapes[0]->rank()))
        return false;
      *shapes[i] = *shape;
    }
    packed_ = form.query.rank() == 3;
    form.q_heads = packed_ ? node.attributes.Int("q_num_heads", 1) : form.query.dim(1);
    form.kv_heads = packed_ ? node.attributes.Int("kv_num_heads", 1) : form.key.dim(1);
    if (form.q_heads < 1 || form.kv_heads < 1) return false;
    if (packed_ && form.query.dim(2) % form.q_heads != 0) return false;
    const int64_t size = packed_ ? form.query.dim(2) / form.q_heads : form.query.dim(3);
    const auto root = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
    form.scale = node.attributes.Has("scale") ? node.attributes.Float("scale", 1.0f) : root;
    form.causal = node.attributes.Int("is_causal", 0) != 0;
    shared_ = form.q_heads != form.kv_heads;
    return true;
  }

  // P, grouped where heads are shared, and its readers.
  bool MatchScores() {
    ValueId p = graph_.node(found_.again).outputs[kAttentionScores];
    if (shared_ && !Follow(p, "Reshape")) return false;
    if (IsNeeded(p)) return false;
    for (const Graph::Use& use : uses_[p.value]) {
      const Node& reader = graph_.node(use.node);
      if (IsWeft(reader, "SoftmaxGrad") && use.input_index == 1 && !softmax_.valid()) {
        softmax_ = reader.id;
      } else if (IsProduct(reader, true, false) && use.input_index == 0 && !values_.valid()) {
        values_ = reader.id;
      } else {
        return false;
      }
    }
    if (!softmax_.valid()) return false;
    const int64_t axis = graph_.node(softmax_).attributes.Int("axis", -1);
    const int rank = TypeOf(p).shape.rank();
    found_.nodes.push_back(softmax_);
    return axis == -1 || axis == rank - 1;
  }

  // dP = dY V^T and dV = P^T dY.
  bool MatchValues() {
    const ValueId dp = graph_.node(softmax_).inputs[0];
    if (!IsPrivate(dp)) return false;
    const Node* const product = ProducerOf(dp);
    if (product == nullptr || !IsProduct(*product, false, true)) return false;
    found_.nodes.push_back(product->id);
    const ValueId grouped = product->inputs[0];
    const auto dy = Whole(grouped, found_.form.q_heads, true);
    if (!dy || TypeOf(*dy).dtype != found_.form.dtype ||
        TypeOf(*dy).shape != SymbolicShape(found_.form.result)) {
      return false;
    }
    found_.dy = *dy;
    if (!IsOperand(product->inputs[1], 2, found_.form.kv_heads, false)) return false;
    if (!values_.valid()) return true;
    const Node& node = graph_.node(values_);
    if (node.inputs[1] != grouped) return false;
    found_.nodes.push_back(values_);
    return Finish(node.outputs[0], false, 2);
  }

  // dQ = scale dS K and dK = scale dS^T Q.
  bool MatchProducts() {
    const ValueId ds = graph_.node(softmax_).outputs[0];
    if (IsNeeded(ds) || uses_[ds.value].empty()) return false;
    for (const Graph::Use& use : uses_[ds.value]) {
      const Node& node = graph_.node(use.node);
      const bool of_query = IsProduct(node, false, false);
      if (use.input_index != 0 || (!of_query && !IsProduct(node, true, false))) return false;
      const int place = of_query ? 0 : 1;
      if (found_.gradients[place].valid()) return false;
      const bool fits = of_query ? IsOperand(node.inputs[1], 1, found_.form.kv_heads, false)
                                 : IsOperand(node.inputs[1], 0, found_.form.q_heads, true);
      if (!fits) return false;
      found_.nodes.push_back(node.id);
      ValueId product = node.outputs[0];
      if (!FollowScale(product) || !Finish(product, of_query && shared_, place)) return false;
    }
    return true;
  }

  // From the product of one gradient to the gradient itself, which lies as operand `place`.
  bool Finish(ValueId value, bool regroups, int place) {
    if (IsUnused(value)) return true;  // rules compute some that nobody wants
    const ValueId like = graph_.node(found_.again).inputs[place];
    if (regroups && !Follow(value, "Reshape")) return false;
    if (packed_) {
      const int64_t heads = place == 0 ? found_.form.q_heads : found_.form.kv_heads;
      const SymbolicShape& packed = TypeOf(like).shape;
      const int64_t size = packed.dim(2).size() / heads;
      const Shape apart{packed.dim(0).size(), heads, packed.dim(1).size(), size};
      if (TypeOf(value).shape != SymbolicShape(apart)) return false;
      if (!Follow(value, "Transpose") || !SwapsHeads(*ProducerOf(value))) return false;
      if (!Follow(value, "Reshape")) return false;
    }
    if (TypeOf(value).dtype != TypeOf(like).dtype || TypeOf(value).shape != TypeOf(like).shape) {
      return false;
    }
    found_.gradients[place] = value;
    return true;
  }

  // What the layout of an operand was made from: one that is [samples, heads, rows, size], grouped
  // to [samples, heads of keys, rows of its queries, size] where the gradient does that.
  std::optional<ValueId> Whole(ValueId value, int64_t heads, bool groups) {
    if (groups && shared_ && !Back(value, "Reshape")) return std::nullopt;
    if (!packed_) return value;
    const Node* const swap = ProducerOf(value);
    if (swap == nullptr || !Back(value, "Transpose") || !SwapsHeads(*swap)) return std::nullopt;
    const SymbolicShape& apart = TypeOf(value).shape;
    if (!apart.has_rank() || apart.rank() != 4 || apart.dim(2) != Dim(heads)) return std::nullopt;
    const Dim batch = apart.dim(0), rows = apart.dim(1), size = apart.dim(3);
    if (!Back(value, "Reshape")) return std::nullopt;
    const SymbolicShape& whole = TypeOf(value).shape;
    if (!whole.has_rank() || whole.rank() != 3 || !size.is_known() || whole.dim(0) != batch ||
        whole.dim(1) != rows || whole.dim(2) != Dim(heads * size.size())) {
      return std::nullopt;
    }
    return value;
  }
  bool IsOperand(ValueId value, int place, int64_t heads, bool groups) {
    const auto whole = Whole(value, heads, groups);
    return whole.has_value() && *whole == graph_.node(found_.again).inputs[place];
  }

  // To the output of the one node that reads it, of ONNX's `op`.
  bool Follow(ValueId& value, const char* op) {
    if (!IsPrivate(value)) return false;
    const Graph::Use& use = uses_[value.value].front();
    const Node& node = graph_.node(use.node);
    if (use.input_index != 0 || !node.domain.empty() || node.op != op || node.outputs.size() != 1) {
      return false;
    }
    found_.nodes.push_back(node.id);
    value = node.outputs[0];
    return true;
  }
  // The same of a product with the number that the scores were scaled by, rounded to the type.
  bool FollowScale(ValueId& value) {
    if (!IsPrivate(value)) return false;
    const Graph::Use& use = uses_[value.value].front();
    const Node& node = graph_.node(use.node);
    if (!node.domain.empty() || node.op != "Mul" || node.inputs.size() != 2) return false;
    const ValueDef& factor = graph_.value(node.inputs[use.input_index == 0 ? 1 : 0]);
    if (factor.source != ValueSource::kConstant || factor.constant.num_elements() != 1)
      return false;
    const absl::StatusOr<Tensor> wide = CastTensor(factor.constant, DType::kFloat64);
    constexpr double kRounding = 0x1p-8;  // of bfloat16; float16 has less
    if (!wide.ok() || !(std::abs(wide->data<double>()[0] - found_.form.scale) <=
                        kRounding * std::abs(found_.form.scale))) {
      return false;
    }
    found_.nodes.push_back(node.id);
    value = node.outputs[0];
    return true;
  }
  // To what the node reads that computes it, of ONNX's `op`.
  bool Back(ValueId& value, const char* op) {
    const Node* const node = ProducerOf(value);
    if (node == nullptr || !node->domain.empty() || node->op != op) return false;
    found_.layouts.push_back(node->id);
    value = node->inputs[0];
    return true;
  }

  bool IsPrivate(ValueId value) const { return uses_[value.value].size() == 1 && !IsNeeded(value); }
  const Node* ProducerOf(ValueId value) const {
    const ValueDef& def = graph_.value(value);
    return def.source == ValueSource::kNode ? &graph_.node(def.producer) : nullptr;
  }
  static bool IsWeft(const Node& node, const char* op) {
    return node.domain == kWeftDomain && node.op == op;
  }
  static bool IsProduct(const Node& node, bool turns_a, bool turns_b) {
    return IsWeft(node, "MatMul") && (node.attributes.Int("transA", 0) != 0) == turns_a &&
           (node.attributes.Int("transB", 0) != 0) == turns_b;
  }
  static bool SwapsHeads(const Node& node) {
    return node.attributes.Ints("perm") == std::vector<int64_t>{0, 2, 1, 3};
  }

  // Phase, stage and color are those of all nodes.
  bool FindSeat() {
    const Node& first = graph_.node(softmax_);
    const std::set<NodeId> nodes(found_.nodes.begin(), found_.nodes.end());
    for (const NodeId id : nodes) {
      const Node& node = graph_.node(id);
      if (node.phase != first.phase || node.stage != first.stage) return false;
      if (!colors_.empty() && colors_[id.value] != colors_[softmax_.value]) return false;
    }
    const Node& again = graph_.node(found_.again);
    int after = again.id.value;
    for (const ValueId input : {found_.dy, again.inputs[0], again.inputs[1], again.inputs[2]}) {
      if (const Node* const node = ProducerOf(input)) after = std::max(after, node->id.value);
    }
    int before = std::numeric_limits<int>::max();
    for (const ValueId output : found_.gradients) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) {
        before = std::min(before, use.node.value);
      }
    }
    for (const NodeId id : nodes) {
      if (id.value > after && id.value < before) found_.seat = id;
    }
    return found_.seat.valid();
  }

  const Graph& graph_;
  const std::vector<int>& colors_;
  const std::vector<std::vector<Graph::Use>> uses_;
  std::vector<bool> needed_;  // by ValueId
  bool packed_ = false, shared_ = false;
  FoundGradient found_;
  NodeId softmax_, values_;
};

void LeaveFirstOutput(Graph& graph, NodeId id) {
  for (int i = static_cast<int>(graph.node(id).outputs.size()) - 1; i > 0; --i) {
    if (graph.node(id).outputs[i].valid()) graph.DropOutput(id, i);
  }
  graph.node(id).outputs.resize(1);
}

// Attention becomes AttentionWithSums; its LogSums.
ValueId GiveSums(Graph& graph, NodeId id, const AttentionForm& form) {
  LeaveFirstOutput(graph, id);
  Node& node = graph.node(id);
  node.domain = std::string(kWeftDomain);
  node.op = kAttentionWithSumsOp;
  node.schema = &AttentionWithSumsSchema();
  node.attributes = AttributesOf(form);
  node.inputs.resize(3);
  const std::string name = absl::StrCat(graph.value(node.outputs[0]).name, "/log_sums");
  const ValueId sums = graph.AddNodeOutput(id, 1, name);
  // The rows are the axis before the last, packed or not.
  const int64_t rows = form.query.dim(form.query.rank() - 2);
  const Shape shape{form.query.dim(0), form.q_heads, rows};
  graph.value(sums).type = {ValueKind::kTensor, DType::kFloat32, SymbolicShape(shape)};
  return sums;
}

// A node becomes the Transpose that undoes `swap`.
void TurnBack(Graph& graph, NodeId id, NodeId swap) {
  LeaveFirstOutput(graph, id);
  const Node& before = graph.node(swap);
  const std::vector<int64_t> perm = before.attributes.Ints("perm");
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[perm[i]] = static_cast<int64_t>(i);
  Node& node = graph.node(id);
  node.domain = before.domain;
  node.op = before.op;
  node.schema = before.schema;
  node.attributes = {{"perm", back}};
  node.inputs = {before.outputs[0]};
}

// One node instead of those found. Their values between are gone.
void Join(Graph& graph, const FoundGradient& found, const LivingForward& forward) {
  const Node before = graph.node(found.again);
  // The gradients move to the seat first, so that they outlive their nodes.
  Node& seat = graph.node(found.seat);
  std::vector<ValueId> lost;
  const std::set<ValueId> stays(std::begin(found.gradients), std::end(found.gradients));
  const std::set<NodeId> nodes(found.nodes.begin(), found.nodes.end());
  NodeId other = *nodes.begin() == found.seat ? *std::next(nodes.begin()) : *nodes.begin();
  for (const NodeId id : nodes) {
    const ValueId output = graph.node(id).outputs[0];
    if (stays.contains(output)) {
      graph.node(id).outputs[0] = kNoValue;
    } else if (id == found.seat) {
      graph.node(other).outputs.push_back(output);
    }
  }
  seat.domain = std::string(kWeftDomain);
  seat.op = kAttentionGradOp;
  seat.schema = &AttentionGradSchema();
  seat.attributes = AttributesOf(found.form);
  seat.inputs = {};
  seat.outputs.assign(std::begin(found.gradients), std::end(found.gradients));
  while (!seat.outputs.back().valid()) seat.outputs.pop_back();
  for (size_t i = 0; i < seat.outputs.size(); ++i) {
    if (!seat.outputs[i].valid()) continue;
    graph.value(seat.outputs[i]).producer = found.seat;
    graph.value(seat.outputs[i]).output_index = static_cast<int>(i);
  }
  for (const NodeId id : nodes) {
    if (id != found.seat) graph.RemoveNode(id);
  }
  ValueId y = before.outputs[0];
  if (forward.swap.valid()) {
    TurnBack(graph, found.again, forward.swap);
  } else if (forward.node.valid()) {
    y = graph.node(forward.node).outputs[0];
    graph.ReplaceUses(before.outputs[0], y);
    graph.RemoveNode(found.again);
  }
  const NodeId gives = forward.node.valid() ? forward.node : found.again;
  const ValueId sums = GiveSums(graph, gives, found.form);
  graph.node(found.seat).inputs = {
      found.dy, before.inputs[0], before.inputs[1], before.inputs[2], y, sums};
}

// The layouts of operands that nothing reads any more, readers before what they read.
void RemoveLayouts(Graph& graph, const std::vector<NodeId>& layouts,
                   const std::set<std::string>& kept, const std::vector<int>& colors) {
  const std::set<NodeId, std::greater<>> nodes(layouts.begin(), layouts.end());
  for (const NodeId id : nodes) {
    if (!graph.is_live(id)) continue;
    const GradientMatcher uses(graph, kept, colors);
    if (uses.IsUnused(graph.node(id).outputs[0])) graph.RemoveNode(id);
  }
}

std::string KeyOf(const AttentionForm& form) {
  return absl::StrCat(std::string(DTypeName(form.dtype)), form.query.ToString(),
                      form.key.ToString(), form.value.ToString(), " ", form.q_heads, " ",
                      form.kv_heads, " ", form.scale, " ", form.causal);
}

}  // namespace

const OpSchema& AttentionWithSumsSchema() {
  static const OpSchema* const schema = WithAttributes(OpSchema::Weft(kAttentionWithSumsOp)
                                                           .Input("query")
                                                           .Input("key")
                                                           .Input("value")
                                                           .Output("Y")
                                                           .Output("log_sums")
                                                           .Infer(InferAttentionWithSums));
  return *schema;
}

const OpSchema& AttentionGradSchema() {
  static const OpSchema* const schema = WithAttributes(OpSchema::Weft(kAttentionGradOp)
                                                           .Input("dY")
                                                           .Input("query")
                                                           .Input("key")
                                                           .Input("value")
                                                           .Input("Y")
                                                           .Input("log_sums")
                                                           .OptionalOutput("dquery")
                                                           .OptionalOutput("dkey")
                                                           .OptionalOutput("dvalue")
                                                           .Infer(InferAttentionGrad));
  return *schema;
}

absl::StatusOr<int> JoinAttentionGradients(Graph& graph, const TakesAttention& takes,
                                           const std::set<std::string>& kept,
                                           const std::vector<int>& colors) {
  std::map<std::string, bool> answers;
  int joined = 0;
  for (const NodeId id : graph.node_ids()) {
    // What was joined before may have removed it.
    if (!graph.is_live(id) || graph.node(id).op != "Attention") continue;
    GradientMatcher matcher(graph, kept, colors);
    const std::optional<FoundGradient> found = matcher.At(id);
    if (!found) continue;
    const auto [answer, is_new] = answers.try_emplace(KeyOf(found->form), false);
    if (is_new) {
      WEFT_ASSIGN_OR_RETURN(answer->second, takes(found->form, graph.node(id)));
    }
    if (!answer->second) continue;
    Join(graph, *found, matcher.ForwardOf(*found));
    RemoveLayouts(graph, found->layouts, kept, colors);
    ++joined;
  }
  return joined;
}

DeviceTakesAttention FindAttentionTaker(DeviceKind device) {
  const auto found = TakersOfDevices().find(device);
  return found == TakersOfDevices().end() ? nullptr : found->second;
}

bool RegisterAttentionTaker(DeviceKind device, DeviceTakesAttention takes) {
  TakersOfDevices()[device] = takes;
  return true;
}

}  // namespace weft
