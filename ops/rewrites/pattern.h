// Pattern: a small tree of operators that is looked for in a graph.
//
//   // x / (1 + |x|)
//   const Pattern x = Pattern::Value("x");
//   const Pattern softsign = Pattern::Op(
//       "Div", {x, Pattern::Op("Add", {Pattern::Number(1), Pattern::Op("Abs", {x})})});
//
// Operands of Add, Mul, Min and Max match in either order.
#ifndef WEFT_OPS_REWRITES_PATTERN_H_
#define WEFT_OPS_REWRITES_PATTERN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

// Where a pattern was found. A value.
struct Match {
  std::map<std::string, ValueId> values;  // by the names of the pattern
  std::map<std::string, double> numbers;  // likewise
  std::vector<NodeId> nodes;              // of the pattern's operators, each once; the root first
  NodeId root() const { return nodes.front(); }
  ValueId value(const std::string& name) const { return values.at(name); }
};

// What a value is whenever the graph runs: a constant, or a variable that nothing trains or
// updates; also through Identity. Not valid where that is not known.
Tensor FixedTensorOf(const Graph& graph, ValueId value);
// The one number of which a constant has all its elements (or a variable that nothing trains or
// updates); also through Identity. Nullopt for other values, and for empty or large tensors.
std::optional<double> UniformNumber(const Graph& graph, ValueId value);
// The elements of an integer value of rank 0 or 1 that are known before the graph runs.
std::optional<std::vector<int64_t>> KnownInts(const Graph& graph, ValueId value);

// Immutable; copies share the tree. Thread-safe.
class Pattern {
 public:
  using Condition = std::function<bool(const Graph&, const Node&)>;

  // Any value. What has the same name in a pattern must be the same value.
  static Pattern Value(std::string name);
  // A constant all of whose elements are this number, to 1e-6 of it.
  static Pattern Number(double number);
  // A constant all of whose elements are one number, which gets a name.
  static Pattern Scalar(std::string name);
  // The first output of an operator of ONNX with these operands, and no more of them; other
  // outputs must not be wanted.
  static Pattern Op(std::string op, std::vector<Pattern> inputs, Condition condition = nullptr);
  // Output `index` of an operator of several outputs, which may all be wanted.
  static Pattern Part(std::string op, int index, std::vector<Pattern> inputs);
  // The first that matches; where several do, each is tried.
  static Pattern OneOf(std::vector<Pattern> patterns);

  // The same pattern, with a name for its value.
  Pattern As(std::string name) const;

  // All places with this root, at most kMaxMatches.
  std::vector<Match> MatchesAt(const Graph& graph, NodeId root) const;

  struct Tree;  // known to the matcher alone
  const Tree& tree() const { return *tree_; }

 private:
  explicit Pattern(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const Tree> tree_;
};

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_PATTERN_H_
