#include "ops/rewrites/pattern.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/tensor.h"

namespace weft {

// One operator, operand or choice of a pattern.
struct Pattern::Tree {
  enum class Kind : uint8_t { kValue, kNumber, kScalar, kOp, kOneOf };
  Kind kind = Kind::kValue;
  std::string name = {};             // of the value or the scalar; of any kind by As
  double number = 0;                 // kNumber
  std::string op = {};               // kOp
  int output = 0;                    // kOp: which of its outputs
  bool is_part = false;              // kOp: others may be wanted
  Condition condition = nullptr;     // kOp
  std::vector<Pattern> inputs = {};  // kOp; of kOneOf: the choices
};

namespace {

constexpr size_t kMaxMatches = 16;
// Numbers are looked for in tensors up to this size (scales of ones, masks of one number).
constexpr int64_t kMaxUniformElements = 1 << 16;
constexpr double kNumberTolerance = 1e-6;

bool IsCommutative(const std::string& op) {
  return op == "Add" || op == "Mul" || op == "Min" || op == "Max";
}

// Puts `value` under a name; false where another one is there.
bool Bind(const std::string& name, ValueId value, Match& match) {
  if (name.empty()) return true;
  const auto [entry, is_new] = match.values.try_emplace(name, value);
  return is_new || entry->second == value;
}

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph) {}

  // Every way in which `value` is what the pattern says, as additions to `so_far`.
  std::vector<Match> At(const Pattern::Tree& tree, ValueId value, const Match& so_far) const;

 private:
  std::vector<Match> AtNumber(const Pattern::Tree& tree, ValueId value, const Match& so_far) const;
  std::vector<Match> AtOp(const Pattern::Tree& tree, ValueId value, const Match& so_far) const;
  // Operands in this order.
  std::vector<Match> AtInputs(const Pattern::Tree& tree, const std::vector<ValueId>& inputs,
                              const Match& so_far) const;

  const Graph& graph_;
};

std::vector<Match> Matcher::At(const Pattern::Tree& tree, ValueId value,
                               const Match& so_far) const {
  if (!value.valid()) return {};
  Match match = so_far;
  switch (tree.kind) {
    case Pattern::Tree::Kind::kValue:
      return Bind(tree.name, value, match) ? std::vector<Match>{std::move(match)}
                                           : std::vector<Match>{};
    case Pattern::Tree::Kind::kNumber:
    case Pattern::Tree::Kind::kScalar:
      return AtNumber(tree, value, so_far);
    case Pattern::Tree::Kind::kOp:
      if (!Bind(tree.name, value, match)) return {};
      return AtOp(tree, value, match);
    case Pattern::Tree::Kind::kOneOf:
      break;
  }
  if (!Bind(tree.name, value, match)) return {};
  std::vector<Match> matches;
  for (const Pattern& choice : tree.inputs) {
    for (Match& found : At(choice.tree(), value, match)) {
      if (matches.size() < kMaxMatches) matches.push_back(std::move(found));
    }
  }
  return matches;
}

std::vector<Match> Matcher::AtNumber(const Pattern::Tree& tree, ValueId value,
                                     const Match& so_far) const {
  const std::optional<double> number = UniformNumber(graph_, value);
  if (!number.has_value()) return {};
  if (tree.kind == Pattern::Tree::Kind::kNumber) {
    const bool is_it = std::abs(*number - tree.number) <= kNumberTolerance * std::abs(tree.number);
    return is_it ? std::vector<Match>{so_far} : std::vector<Match>{};
  }
  Match match = so_far;
  const auto [entry, is_new] = match.numbers.try_emplace(tree.name, *number);
  if (!is_new && entry->second != *number) return {};
  return {std::move(match)};
}

std::vector<Match> Matcher::AtOp(const Pattern::Tree& tree, ValueId value,
                                 const Match& so_far) const {
  const ValueDef& def = graph_.value(value);
  if (def.source != ValueSource::kNode || def.output_index != tree.output) return {};
  const Node& node = graph_.node(def.producer);
  if (node.op != tree.op || !node.domain.empty()) return {};
  const auto wanted = std::count_if(node.outputs.begin(), node.outputs.end(),
                                    [](ValueId output) { return output.valid(); });
  std::vector<ValueId> inputs = node.inputs;
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  if ((wanted != 1 && !tree.is_part) || inputs.size() != tree.inputs.size()) return {};
  if (tree.condition && !tree.condition(graph_, node)) return {};
  Match match = so_far;
  const bool is_known =
      std::find(match.nodes.begin(), match.nodes.end(), node.id) != match.nodes.end();
  if (!is_known) match.nodes.push_back(node.id);
  std::vector<Match> matches = AtInputs(tree, inputs, match);
  if (inputs.size() != 2 || inputs[0] == inputs[1] || !IsCommutative(node.op)) return matches;
  std::swap(inputs[0], inputs[1]);
  for (Match& found : AtInputs(tree, inputs, match)) {
    if (matches.size() < kMaxMatches) matches.push_back(std::move(found));
  }
  return matches;
}

std::vector<Match> Matcher::AtInputs(const Pattern::Tree& tree, const std::vector<ValueId>& inputs,
                                     const Match& so_far) const {
  std::vector<Match> matches = {so_far};
  for (size_t i = 0; i < inputs.size() && !matches.empty(); ++i) {
    std::vector<Match> longer;
    for (const Match& match : matches) {
      for (Match& found : At(tree.inputs[i].tree(), inputs[i], match)) {
        if (longer.size() < kMaxMatches) longer.push_back(std::move(found));
      }
    }
    matches = std::move(longer);
  }
  return matches;
}

}  // namespace

Tensor FixedTensorOf(const Graph& graph, ValueId id) {
  const ValueDef* value = &graph.value(id);
  while (value->source == ValueSource::kNode && graph.node(value->producer).op == "Identity" &&
         graph.node(value->producer).domain.empty()) {
    value = &graph.value(graph.node(value->producer).inputs[0]);
  }
  if (value->source == ValueSource::kConstant) return value->constant;
  if (value->source != ValueSource::kVariable) return Tensor();
  const Variable* const variable = graph.VariableOf(value->id);
  const bool changes = variable == nullptr || variable->trainable || variable->update.valid();
  return changes ? Tensor() : variable->initial;
}

std::optional<double> UniformNumber(const Graph& graph, ValueId value) {
  const Tensor tensor = FixedTensorOf(graph, value);
  if (!tensor.valid() || tensor.num_elements() < 1 || tensor.num_elements() > kMaxUniformElements) {
    return std::nullopt;
  }
  const auto numbers = ToDoubles(tensor);
  if (!numbers.ok()) return std::nullopt;
  const bool is_uniform = std::all_of(numbers->begin(), numbers->end(),
                                      [&](double number) { return number == numbers->front(); });
  return is_uniform ? std::optional<double>(numbers->front()) : std::nullopt;
}

std::optional<std::vector<int64_t>> KnownInts(const Graph& graph, ValueId id) {
  const ValueDef& value = graph.value(id);
  if (value.elements.has_value()) {
    std::vector<int64_t> sizes;
    for (const Dim& dim : *value.elements) {
      if (dim.is_known()) sizes.push_back(dim.size());
    }
    if (sizes.size() == value.elements->size()) return sizes;
  }
  const Tensor tensor = FixedTensorOf(graph, id);
  if (!tensor.valid() || !IsInteger(tensor.dtype()) || tensor.shape().rank() > 1) {
    return std::nullopt;
  }
  const auto numbers = ToInt64s(tensor);
  return numbers.ok() ? std::optional<std::vector<int64_t>>(*numbers) : std::nullopt;
}

Pattern Pattern::Value(std::string name) {
  return Pattern(std::make_shared<Tree>(Tree{.kind = Tree::Kind::kValue, .name = std::move(name)}));
}

Pattern Pattern::Number(double number) {
  return Pattern(std::make_shared<Tree>(Tree{.kind = Tree::Kind::kNumber, .number = number}));
}

Pattern Pattern::Scalar(std::string name) {
  return Pattern(
      std::make_shared<Tree>(Tree{.kind = Tree::Kind::kScalar, .name = std::move(name)}));
}

Pattern Pattern::Op(std::string op, std::vector<Pattern> inputs, Condition condition) {
  return Pattern(std::make_shared<Tree>(Tree{.kind = Tree::Kind::kOp,
                                             .op = std::move(op),
                                             .condition = std::move(condition),
                                             .inputs = std::move(inputs)}));
}

Pattern Pattern::Part(std::string op, int index, std::vector<Pattern> inputs) {
  return Pattern(std::make_shared<Tree>(Tree{.kind = Tree::Kind::kOp,
                                             .op = std::move(op),
                                             .output = index,
                                             .is_part = true,
                                             .inputs = std::move(inputs)}));
}

Pattern Pattern::OneOf(std::vector<Pattern> patterns) {
  return Pattern(
      std::make_shared<Tree>(Tree{.kind = Tree::Kind::kOneOf, .inputs = std::move(patterns)}));
}

Pattern Pattern::As(std::string name) const {
  Tree named = *tree_;
  named.name = std::move(name);
  return Pattern(std::make_shared<Tree>(std::move(named)));
}

std::vector<Match> Pattern::MatchesAt(const Graph& graph, NodeId root) const {
  const Node& node = graph.node(root);
  if (node.outputs.empty() || !node.outputs[0].valid()) return {};
  return Matcher(graph).At(*tree_, node.outputs[0], Match());
}

}  // namespace weft
