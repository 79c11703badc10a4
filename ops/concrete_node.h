// ConcreteNode: one node with input tensors in hand, as kernel factories, sharding rules and cost
// functions see it.
#ifndef WEFT_OPS_CONCRETE_NODE_H_
#define WEFT_OPS_CONCRETE_NODE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "graph/op_schema.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace weft {

// How a single node is run.
struct NodeRunOptions {
  // Null: the production kernels.
  const KernelRegistry* registry = nullptr;
  // Null: CpuDevice().
  Device* device = nullptr;
  int threads = 1;
  bool strict = true;
  bool tf32 = false;  // PrepareContext::tf32
  // Where the operands lie in their global tensors; empty: nothing is sharded.
  std::vector<OperandSlice> input_slices;
  std::vector<OperandSlice> output_slices;
  bool uses_cudnn = false;
};

// The types of the node's outputs for these inputs (an invalid tensor for an omitted one). Unwanted
// outputs have the dtype kInvalid. InvalidArgument naming the node when the inputs do not fit.
absl::StatusOr<std::vector<ValueType>> InferConcreteOutputs(const Node& node,
                                                            const std::vector<Tensor>& inputs);

// Runs a prepared kernel once on host tensors (an invalid one for an absent operand), on a stream
// of a device that computes in the host's memory, and waits for it. After an error the stream is
// used up.
absl::Status RunKernelOnce(Kernel& kernel, const std::vector<Tensor>& inputs,
                           std::vector<Tensor>& outputs, Device& device, Stream& stream,
                           absl::Duration deadline);

// Borrows the node, which must outlive it; shares the tensors. InputValue is known exactly for the
// schema's value inputs, as it is at least in a compiled program.
class ConcreteNode final : public PrepareContext {
 public:
  // Infers the outputs. Unimplemented when a shape depends on data or the op has no schema.
  static absl::StatusOr<ConcreteNode> Create(const Node& node, std::vector<Tensor> inputs,
                                             NodeRunOptions options = {});

  const Node& node() const override { return *node_; }
  const Shape& InputShape(int i) const override;
  const Shape& OutputShape(int i) const override;
  DType InputDType(int i) const override;
  DType OutputDType(int i) const override;
  const Tensor* InputValue(int i) const override;
  const OperandSlice& InputSlice(int i) const override { return input_slices_[i]; }
  const OperandSlice& OutputSlice(int i) const override { return output_slices_[i]; }
  Device& device() const override;
  int threads() const override { return options_.threads; }
  bool strict() const override { return options_.strict; }
  bool tf32() const override { return options_.tf32 && !options_.strict; }
  bool InputIsConstant(int i) const override { return InputValue(i) != nullptr; }
  bool uses_cudnn() const override { return options_.uses_cudnn; }

  const std::vector<Tensor>& inputs() const { return inputs_; }
  // True if every wanted output is the same bytes as an input; fills `outputs` with views.
  bool Alias(std::vector<Tensor>& outputs) const;
  // The kernel for these operands. Unimplemented when there is none.
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare() const;
  // Uninitialised host tensors for the outputs; invalid ones where the output is not wanted.
  absl::StatusOr<std::vector<Tensor>> AllocateOutputs() const;

  // Prepares a kernel and runs it once (or makes views, where the schema says alias). One tensor on
  // the host per output; invalid ones where the output is not wanted.
  absl::StatusOr<std::vector<Tensor>> Run() const;

 private:
  ConcreteNode(const Node& node, std::vector<Tensor> inputs, NodeRunOptions options)
      : node_(&node), inputs_(std::move(inputs)), options_(std::move(options)) {}

  const KernelRegistry& registry() const;
  absl::Status RunOnHost(Kernel& kernel, std::vector<Tensor>& outputs) const;
  absl::Status RunOnDevice(Kernel& kernel, std::vector<Tensor>& outputs) const;

  const Node* node_;
  std::vector<Tensor> inputs_;
  NodeRunOptions options_;
  std::vector<DType> output_dtypes_;
  std::vector<Shape> output_shapes_;
  std::vector<OperandSlice> input_slices_;
  std::vector<OperandSlice> output_slices_;
};

}  // namespace weft

#endif  // WEFT_OPS_CONCRETE_NODE_H_
