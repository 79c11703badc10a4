#include "placement/testing/regression_graph.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph_builder.h"

namespace weft::testing {
namespace {

class RegressionBuilder {
 public:
  Graph Build() {
    const ValueId x = Input("x", 4);
    const ValueId labels = Input("labels", 2);
    const ValueId w1 = Weight("w1", {4, 3});
    const ValueId w2 = Weight("w2", {3, 2});
    In(Phase::kForward, "fc1", "");
    const ValueId h = builder_.Op("MatMul", {x, w1});
    In(Phase::kForward, "fc2", "");
    const ValueId y = builder_.Op("MatMul", {h, w2});
    In(Phase::kForward, "loss", "");
    const ValueId error = builder_.WeftOp("SquaredErrorSum", {y, labels});
    const ValueId count = builder_.WeftOp("ElementCount", {y});
    const Attributes first_transposed = {{"transA", int64_t{1}}};
    In(Phase::kBackward, "grad/loss", "loss/SquaredErrorSum");
    const ValueId one = builder_.Scalar(DType::kFloat64, 1);
    const ValueId dy = builder_.WeftOp("SquaredErrorGrad", {one, y, labels});
    In(Phase::kBackward, "grad/fc2", "fc2/MatMul");
    const ValueId dw2 = builder_.WeftOp("MatMul", {h, dy}, first_transposed);
    const ValueId dh = builder_.WeftOp("MatMul", {dy, w2}, {{"transB", int64_t{1}}});
    In(Phase::kBackward, "grad/fc1", "fc1/MatMul");
    const ValueId dw1 = builder_.WeftOp("MatMul", {x, dh}, first_transposed);
    AddStep(error, count, {{"w1", dw1}, {"w2", dw2}});
    return std::move(graph_);
  }

  const absl::Status& status() const { return builder_.status(); }

 private:
  ValueId Input(const std::string& name, int64_t width) {
    return graph_.AddInput(
        name, {ValueKind::kTensor, DType::kFloat64, SymbolicShape({Dim::Symbol("N"), Dim(width)})});
  }
  ValueId Weight(const std::string& name, Shape shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat64, shape}, Tensor(), true);
  }
  void In(Phase phase, const std::string& prefix, const std::string& forward) {
    builder_.set_phase(phase);
    builder_.set_name_prefix(prefix + "/");
    Origin origin;
    origin.forward_node = forward;
    origin.is_gradient = !forward.empty();
    builder_.set_origin(origin);
  }

  void AddStep(ValueId error, ValueId count,
               const std::vector<std::pair<std::string, ValueId>>& gradients) {
    In(Phase::kUpdate, "step", "");
    const ValueId weight = builder_.WeftOp("Accumulate", {count});
    const ValueId loss = builder_.Op("Div", {builder_.WeftOp("Accumulate", {error}), weight});
    builder_.Name(loss, "loss");
    graph_.AddOutput(loss);
    const ValueId rate = graph_.AddInput(
        "learning_rate", {ValueKind::kTensor, DType::kFloat32, Shape{}}, InputRole::kStep);
    for (const auto& [name, gradient] : gradients) {
      In(Phase::kUpdate, "update/" + name, graph_.value(gradient).origin.forward_node);
      builder_.set_origin({"", name, true});
      const ValueId sum = builder_.WeftOp("Accumulate", {gradient});
      const ValueId mean = builder_.Op("Div", {sum, weight});
      const ValueId variable = graph_.FindVariable(name)->value;
      graph_.SetVariableUpdate(name, builder_.WeftOp("SgdUpdate", {variable, mean, rate}));
    }
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

}  // namespace

Graph RegressionGraph() {
  RegressionBuilder builder;
  Graph graph = builder.Build();
  if (!builder.status().ok()) return Graph();  // the tests' own ops are missing; they will fail
  return graph;
}

}  // namespace weft::testing
