// BackwardBody: a body of If, Loop or Scan run again, with the gradients of its outputs.
#ifndef WEFT_OPS_DEFS_RULES_BACKWARD_BODY_H_
#define WEFT_OPS_DEFS_RULES_BACKWARD_BODY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "graph/op_schema.h"

namespace weft {

// Builds the body of a node of the backward pass: inputs of its own first, then captures, then what
// the forward body computes, then gradients. Borrows the context and the forward body.
class BackwardBody {
 public:
  BackwardBody(GradientContext& context, const NodeBody& forward)
      : context_(context),
        forward_(forward),
        graph_(std::make_shared<Graph>()),
        builder_(*graph_) {}

  // An input of its own.
  ValueId AddInput(const std::string& name, ValueType type) {
    return graph_->AddInput(name, std::move(type));
  }
  // A value of the graph that the node is in, taken from outside; the same for the same value.
  ValueId Capture(ValueId outer);
  // The forward body on these values for its own inputs; its captures are captured here too.
  absl::StatusOr<std::vector<ValueId>> RunForward(std::vector<ValueId> own_inputs);
  // What RunForward captured in the place of the node's input `input`.
  ValueId ForwardCapture(int input) const { return forward_captures_.at(input); }
  // Gradients of the seeded values by value; no entry where they depend on nothing of it.
  absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(const std::vector<GradientSeed>& seeds,
                                                           const std::vector<ValueId>& wanted);
  ValueId ZerosLike(ValueId value);
  // An output of its own: what the node gives, also where a value is an input as it came in.
  void AddOutput(ValueId value) { graph_->AddOutput(builder_.Op("Identity", {value})); }

  GraphBuilder& builder() { return builder_; }
  // The graph and what it captures, for a node of the outer graph.
  absl::Status AddTo(const std::string& name, Attributes& attributes, std::vector<ValueId>& inputs);

 private:
  GradientContext& context_;
  const NodeBody forward_;
  std::shared_ptr<Graph> graph_;
  GraphBuilder builder_;
  std::vector<ValueId> captured_;            // outer values, in the order of the inputs
  std::map<ValueId, ValueId> captures_;      // by outer value
  std::map<int, ValueId> forward_captures_;  // by input of the forward node
};

// Zeros of the shape and dtype of `value`.
ValueId ZerosLike(GraphBuilder& builder, ValueId value);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_BACKWARD_BODY_H_
