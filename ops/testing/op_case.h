// OpCase: one op on given inputs, and what holds of it, without a test framework: for tests and for
// `graph_runner op check`.
#ifndef WEFT_OPS_TESTING_OP_CASE_H_
#define WEFT_OPS_TESTING_OP_CASE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/concrete_node.h"
#include "tensor/tensor.h"

namespace weft::testing {

struct OpCase {
  std::string domain = "";
  std::string op;
  Attributes attributes = {};
  std::vector<Tensor> inputs;  // an invalid tensor for an omitted one
  // Which outputs are wanted.
  std::vector<bool> outputs = {true};
  bool tf32 = false;  // PrepareContext::tf32, on a GPU

  std::string ToString() const;  // "Add(float32[2,3], float32[3])"
};

// A graph of the one node; its inputs are graph inputs with the tensors' types, in order.
struct SingleNodeGraph {
  std::unique_ptr<Graph> graph;
  NodeId node;
};
SingleNodeGraph MakeSingleNodeGraph(const OpCase& op_case);

// One tensor per output. The errors of inference, preparation and running come through.
absl::StatusOr<std::vector<Tensor>> RunCase(const OpCase& op_case, NodeRunOptions options);

// An element may differ by the sum of the three.
struct Tolerance {
  double of_magnitude = 2e-6;  // times the largest finite magnitude expected in that tensor
  double of_element = 0;       // times the expected element's own magnitude
  double absolute = 1e-30;
};

// Equal dtype (unless `any_dtype`) and shape; elements within the tolerance; NaN equals NaN. Else
// Internal, saying which element is what.
absl::Status CompareTensors(const Tensor& actual, const Tensor& expected,
                            const Tolerance& tolerance = {}, bool any_dtype = false);

// The case with its floating inputs (but not value inputs) as float64.
OpCase InFloat64(OpCase op_case);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_OP_CASE_H_
