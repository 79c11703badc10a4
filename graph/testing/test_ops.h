// Small ops of the domain "test" and an evaluator for them, so that the tests of graph/ need no
// other folder. Linking the library registers them.
//
//   Add(a, b), Negate(x), Random(x) (stateful), Same(x) (an alias), Relabel(x) (another shape of
//   the same bytes, attribute "shape"), Shape(x), Gather(x, indices), Concat(...), Reshape(x,
//   shape), Split(x) -> two halves of axis 0, the second optional, FoldTo(x, shape) (a no-op when
//   the shapes are equal), Fill(shape), Find(x) (its output's size depends on data), Strict(x)
//   (with a required attribute), Send(x) (communication), Accumulate(x) (boundary), Block(x)
//   (boundary and an alias), Subtract(a, b) = Add(a, Negate(b)), Vanish(x) = Subtract(x, x),
//   Unsure(x) (its expansion refuses after its first node), Endless(x) = Endless(Negate(x)).
#ifndef WEFT_GRAPH_TESTING_TEST_OPS_H_
#define WEFT_GRAPH_TESTING_TEST_OPS_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"

namespace weft::testing {

// float32 of these dimensions; a string is a symbol ("?" = unknown), an int a size.
struct TestDim {
  TestDim(int size) : dim(size) {}  // NOLINT
  TestDim(const char* name)
      : dim(std::string(name) == "?" ? Dim() : Dim::Symbol(name)) {}  // NOLINT
  Dim dim;
};
ValueType Floats(const std::vector<TestDim>& dims);
ValueType Int64s(const std::vector<TestDim>& dims);

// Adds a test op with one output named `name` and infers its type (errors are the test's failure).
ValueId AddOp(Graph& graph, const std::string& name, const std::string& op,
              std::vector<ValueId> inputs, Attributes attributes = {});
ValueId AddInts(Graph& graph, const std::string& name, const std::vector<int64_t>& values);
Tensor FloatsOf(const Shape& shape, float value);

// Computes the pure test ops on float32 and int64; Unimplemented for "Gather" when told so.
class TestEvaluator : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const Node& node,
                                               const std::vector<Tensor>& inputs) override;
  int calls = 0;
  // Ops for which there is no kernel.
  std::vector<std::string> missing;
};

}  // namespace weft::testing

#endif  // WEFT_GRAPH_TESTING_TEST_OPS_H_
