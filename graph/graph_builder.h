// GraphBuilder: adds nodes to a graph and infers their types as it goes. For gradient rules,
// function bodies, optimizers and tests.
#ifndef WEFT_GRAPH_GRAPH_BUILDER_H_
#define WEFT_GRAPH_GRAPH_BUILDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Borrows the graph. The first error (an unknown op, a failed shape function) is kept in status();
// later calls then return kNoValue and do nothing, so rules can be written without checks in
// between.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  // Applied to every node added from now on.
  void set_phase(Phase phase) { phase_ = phase; }
  void set_stage(StageId stage) { stage_ = stage; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  // Put in front of made-up node and value names ("grad/").
  void set_name_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& name_prefix() const { return prefix_; }

  // ONNX op with one output.
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Op of our own domain with one output.
  ValueId WeftOp(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Any op, any number of outputs; `wanted[i]` false leaves output i out.
  std::vector<ValueId> Ops(const std::string& domain, const std::string& op,
                           std::vector<ValueId> inputs, Attributes attributes,
                           std::vector<bool> wanted);

  ValueId Constant(Tensor tensor, const std::string& name = "");
  ValueId Ints(const std::vector<int64_t>& values);  // int64 [n]
  ValueId Float(float value);                        // float32 []
  // A scalar of `dtype` (floating).
  ValueId Scalar(DType dtype, double value);

  // Of kNoValue, which calls after an error return: a type of unknown rank and dtype.
  const ValueType& type(ValueId value) const;
  // Gives the value a name hint (a unique suffix is added if taken).
  void Name(ValueId value, const std::string& name);
  Graph& graph() { return graph_; }
  const absl::Status& status() const { return status_; }

 private:
  Graph& graph_;
  Phase phase_ = Phase::kForward;
  StageId stage_;
  Origin origin_;
  std::string prefix_;
  absl::Status status_;
};

// A builder of nodes that exist for a node of the graph, such as those that replace it: they have
// its phase and stage, its name and "/" in front of theirs, and as origin its own, or the node
// itself where it has none.
GraphBuilder BuilderFor(Graph& graph, const Node& node);

}  // namespace weft

#endif  // WEFT_GRAPH_GRAPH_BUILDER_H_
