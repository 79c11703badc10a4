// PrepareContext over a node of a concrete graph.
#ifndef WEFT_EXECUTOR_LOWERING_NODE_CONTEXT_H_
#define WEFT_EXECUTOR_LOWERING_NODE_CONTEXT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "tensor/device.h"

namespace weft {

// Borrows everything. Short-lived: for the time a kernel is prepared.
class NodeContext final : public PrepareContext {
 public:
  struct Settings {
    Device* device = nullptr;
    int threads = 1;
    bool strict = false;
    bool tf32 = false;
    bool uses_cudnn = false;
  };
  // InvalidArgument naming the value whose shape is not concrete.
  static absl::StatusOr<NodeContext> Create(const Graph& graph, const Node& node,
                                            const Settings& settings);

  const Node& node() const override { return *node_; }
  const Shape& InputShape(int i) const override;
  const Shape& OutputShape(int i) const override;
  DType InputDType(int i) const override;
  DType OutputDType(int i) const override;
  const Tensor* InputValue(int i) const override;
  const OperandSlice& InputSlice(int i) const override;
  const OperandSlice& OutputSlice(int i) const override;
  Device& device() const override { return *settings_.device; }
  int threads() const override { return settings_.threads; }
  bool strict() const override { return settings_.strict; }
  bool tf32() const override { return settings_.tf32 && !settings_.strict; }
  bool InputIsConstant(int i) const override { return InputValue(i) != nullptr; }
  bool uses_cudnn() const override { return settings_.uses_cudnn; }

 private:
  NodeContext(const Graph& graph, const Node& node, const Settings& settings)
      : graph_(&graph), node_(&node), settings_(settings) {}

  const Graph* graph_;
  const Node* node_;
  Settings settings_;
  std::vector<Shape> input_shapes_;  // local
  std::vector<Shape> output_shapes_;
  std::vector<OperandSlice> inputs_;
  std::vector<OperandSlice> outputs_;
};

// Bytes of a value of a concrete graph; InvalidArgument if its type or shape is not known or not a
// tensor.
absl::StatusOr<int64_t> ValueBytes(const Graph& graph, ValueId value);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_NODE_CONTEXT_H_
