// Values of a graph and of the bodies of its nodes, followed to where they are made; the sizes that
// they stand for.
#ifndef WEFT_OPS_REWRITES_NESTED_VALUES_H_
#define WEFT_OPS_REWRITES_NESTED_VALUES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/node_bodies.h"

namespace weft {

// A graph; of a body also the node that it belongs to, and the graph around it.
struct Scope {
  const Graph* graph = nullptr;
  const Scope* outer = nullptr;  // null: a whole graph
  const Node* node = nullptr;    // of `outer`
  NodeBody body = {};
};

// A value in its graph or body.
struct Place {
  const Scope* scope = nullptr;
  ValueId value;
  bool valid() const { return scope != nullptr && value.valid(); }
  const ValueDef& def() const { return scope->graph->value(value); }  // REQUIRES: valid()
  friend bool operator==(const Place&, const Place&) = default;
};

// A number of elements: a factor times dimensions that have names.
struct SizeProduct {
  int64_t factor = 1;  // from 1 to 2^40
  std::multiset<std::string> symbols;
  friend bool operator==(const SizeProduct&, const SizeProduct&) = default;
};
// The size divided by `length`; none where that is not whole.
std::optional<SizeProduct> Divided(const SizeProduct& size, int64_t length);

// Reads one graph. Owns the scopes of its places. Borrows the graph, which must not change. What it
// answers is certain; "none" means that it does not know. It stops to know after kMaxNestedWork
// steps, so that a file cannot keep it busy. One thread.
class NestedValues {
 public:
  explicit NestedValues(const Graph& graph);
  NestedValues(const NestedValues&) = delete;
  NestedValues& operator=(const NestedValues&) = delete;

  Place Outermost(ValueId value) const { return {&root_, value}; }
  // The scope of a body of a node in `scope`; null if it has none of this name.
  const Scope* BodyOf(const Scope& scope, const Node& node, const std::string& name);
  const Scope& root() const { return root_; }

  // The node that makes a value as its output `index`; null if no node of ONNX does.
  static const Node* MakerOf(const Place& place, int index = 0);
  static Place Input(const Place& place, const Node& node, size_t input);

  // Where a value comes from, behind Identity, out of bodies, and into the branch of an If whose
  // condition is fixed.
  Place Source(Place place);
  // The same for a value of one element: also behind Reshape, Squeeze and Unsqueeze, and casts to
  // int32, int64, float32 and float64.
  Place ScalarSource(Place place);

  // A condition that is the same whenever the graph runs.
  std::optional<bool> FixedCondition(Place place);
  std::optional<std::vector<int64_t>> Ints(Place place);
  std::optional<int64_t> Int(Place place);
  bool AreInts(Place place, const std::vector<int64_t>& expected);

  // How many elements a value has, how many along axis 0, and the size that a scalar says.
  std::optional<SizeProduct> Elements(Place place);
  std::optional<SizeProduct> Rows(Place place);
  std::optional<SizeProduct> Scalar(Place place);
  // Whether all elements are one.
  bool IsOnes(Place place);

  // Counts a step; false once there were too many.
  bool MayGoOn() { return ++work_ <= kMaxNestedWork; }

 private:
  static constexpr int kMaxNestedWork = 1024;

  const Scope root_;
  std::map<const Graph*, std::unique_ptr<Scope>> bodies_;
  int work_ = 0;
};

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_NESTED_VALUES_H_
