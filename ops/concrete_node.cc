#include "ops/concrete_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A run on an asynchronous device that takes longer is stuck.
constexpr absl::Duration kNodeRunDeadline = absl::Minutes(2);

std::string DescribeNode(const Node& node, const std::vector<Tensor>& inputs) {
  std::string text =
      absl::StrCat("node '", node.name, "' (",
                   node.schema != nullptr ? node.schema->FullName() : node.op, " of ");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i > 0) text += ", ";
    if (!inputs[i].valid()) {
      text += "-";
      continue;
    }
    absl::StrAppend(&text, std::string(DTypeName(inputs[i].dtype())), inputs[i].shape().ToString());
  }
  return absl::StrCat(text, ")");
}

// Shape inference of one node whose inputs are tensors.
class ConcreteInference final : public InferenceContext {
 public:
  ConcreteInference(const Node& node, const std::vector<Tensor>& inputs)
      : node_(node), inputs_(inputs), outputs_(node.outputs.size()) {
    for (const Tensor& input : inputs) {
      types_.push_back(ValueType{ValueKind::kTensor, input.dtype(), input.shape()});
    }
  }

  const Node& node() const override { return node_; }
  const ValueType& InputType(int i) const override { return types_[i]; }
  const Tensor* InputValue(int i) const override {
    return HasInput(i) && inputs_[i].valid() ? &inputs_[i] : nullptr;
  }
  std::optional<std::vector<Dim>> InputDims(int i) const override {
    const Tensor* value = InputValue(i);
    if (value == nullptr || !IsInteger(value->dtype()) || value->shape().rank() > 1) {
      return std::nullopt;
    }
    const absl::StatusOr<std::vector<int64_t>> elements = ToInt64s(*value);
    if (!elements.ok()) return std::nullopt;
    std::vector<Dim> dims;
    for (const int64_t element : *elements) {
      if (element < 0) return std::nullopt;
      dims.push_back(Dim(element));
    }
    return dims;
  }
  using InferenceContext::SetOutput;
  void SetOutput(int i, ValueType type) override {
    if (i >= 0 && i < static_cast<int>(outputs_.size())) outputs_[i] = std::move(type);
  }
  void SetOutputDims(int, std::vector<Dim>) override {}
  absl::Status Error(const std::string& message) const override {
    return absl::InvalidArgumentError(absl::StrCat(DescribeNode(node_, inputs_), ": ", message));
  }

  std::vector<ValueType> TakeOutputs() { return std::move(outputs_); }

 private:
  const Node& node_;
  const std::vector<Tensor>& inputs_;
  std::vector<ValueType> types_;
  std::vector<ValueType> outputs_;
};

OperandSlice WholeSlice(const Shape& shape) {
  return OperandSlice{shape, std::vector<int64_t>(shape.rank(), 0)};
}

// What a stream needs to run a kernel once.
struct Launch {
  Kernel* kernel;
  KernelContext context;
  static absl::Status Run(void* argument, Stream& stream) {
    Launch& launch = *static_cast<Launch*>(argument);
    launch.context.stream = &stream;
    return launch.kernel->Run(launch.context);
  }
};

// Kernels want 64-byte-aligned operands; views of files and batches need not be.
absl::StatusOr<Tensor> Aligned(const Tensor& tensor) {
  if (!tensor.valid() || tensor.num_elements() == 0) return tensor;
  if (reinterpret_cast<uintptr_t>(tensor.raw_data()) % kAlignment == 0) return tensor;
  return tensor.Clone();
}

const Shape& ScalarShape() {
  static const Shape* const shape = new Shape;
  return *shape;
}

}  // namespace

absl::StatusOr<std::vector<ValueType>> InferConcreteOutputs(const Node& node,
                                                            const std::vector<Tensor>& inputs) {
  if (node.schema == nullptr || !node.schema->infer()) {
    return absl::UnimplementedError(
        absl::StrCat(DescribeNode(node, inputs), ": the op is not known to the engine"));
  }
  if (inputs.size() != node.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeNode(node, inputs), ": ", inputs.size(),
                                                   " tensors for ", node.inputs.size(), " inputs"));
  }
  ConcreteInference inference(node, inputs);
  WEFT_RETURN_IF_ERROR(node.schema->infer()(inference));
  return inference.TakeOutputs();
}

absl::Status RunKernelOnce(Kernel& kernel, const std::vector<Tensor>& inputs,
                           std::vector<Tensor>& outputs, Device& device, Stream& stream,
                           absl::Duration deadline) {
  std::vector<Tensor> aligned;  // keeps the copies
  std::vector<const void*> input_data;
  for (const Tensor& input : inputs) {
    WEFT_ASSIGN_OR_RETURN(aligned.emplace_back(), Aligned(input));
    input_data.push_back(input.valid() ? aligned.back().raw_data() : nullptr);
  }
  std::vector<void*> output_data;
  for (const Tensor& output : outputs) {
    output_data.push_back(output.valid() ? output.raw_data() : nullptr);
  }
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> workspace,
                        device.Allocate(kernel.workspace_bytes()));
  Launch launch{&kernel, {}};
  launch.context.inputs = input_data.data();
  launch.context.outputs = output_data.data();
  launch.context.workspace = workspace->data();
  WEFT_RETURN_IF_ERROR(stream.Enqueue(Work{&Launch::Run, &launch}));
  return stream.Synchronize(deadline);
}

absl::StatusOr<ConcreteNode> ConcreteNode::Create(const Node& node, std::vector<Tensor> inputs,
                                                  NodeRunOptions options) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueType> types, InferConcreteOutputs(node, inputs));
  ConcreteNode concrete(node, std::move(inputs), std::move(options));
  for (size_t i = 0; i < types.size(); ++i) {
    const bool wanted = node.outputs[i].valid();
    const std::optional<Shape> shape = types[i].shape.ToConcrete();
    if (wanted && (types[i].kind != ValueKind::kTensor || !shape.has_value())) {
      return absl::UnimplementedError(
          absl::StrCat(DescribeNode(node, concrete.inputs_), ": the shape of output ", i, " (",
                       types[i].ToString(), ") is not known from the shapes of the inputs"));
    }
    concrete.output_dtypes_.push_back(wanted ? types[i].dtype : DType::kInvalid);
    concrete.output_shapes_.push_back(wanted ? *shape : Shape{});
  }
  for (const Tensor& input : concrete.inputs_) {
    concrete.input_slices_.push_back(WholeSlice(input.shape()));
  }
  for (const Shape& shape : concrete.output_shapes_) {
    concrete.output_slices_.push_back(WholeSlice(shape));
  }
  const NodeRunOptions& run = concrete.options_;
  std::copy(run.input_slices.begin(), run.input_slices.end(), concrete.input_slices_.begin());
  std::copy(run.output_slices.begin(), run.output_slices.end(), concrete.output_slices_.begin());
  return concrete;
}

const Shape& ConcreteNode::InputShape(int i) const {
  return HasInput(i) ? inputs_[i].shape() : ScalarShape();
}

const Shape& ConcreteNode::OutputShape(int i) const {
  return HasOutput(i) ? output_shapes_[i] : ScalarShape();
}

DType ConcreteNode::InputDType(int i) const {
  return HasInput(i) ? inputs_[i].dtype() : DType::kInvalid;
}

DType ConcreteNode::OutputDType(int i) const {
  return HasOutput(i) ? output_dtypes_[i] : DType::kInvalid;
}

const Tensor* ConcreteNode::InputValue(int i) const {
  if (!HasInput(i)) return nullptr;
  const std::vector<int>& known = node_->schema->value_inputs();
  const bool is_known = std::find(known.begin(), known.end(), i) != known.end();
  return is_known ? &inputs_[i] : nullptr;
}

Device& ConcreteNode::device() const {
  return options_.device != nullptr ? *options_.device : CpuDevice();
}

const KernelRegistry& ConcreteNode::registry() const {
  return options_.registry != nullptr ? *options_.registry : KernelRegistry::Global();
}

absl::StatusOr<std::vector<Tensor>> ConcreteNode::AllocateOutputs() const {
  std::vector<Tensor> outputs(output_shapes_.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (output_dtypes_[i] == DType::kInvalid) continue;
    WEFT_ASSIGN_OR_RETURN(outputs[i], Tensor::Allocate(output_dtypes_[i], output_shapes_[i]));
  }
  return outputs;
}

bool ConcreteNode::Alias(std::vector<Tensor>& outputs) const {
  outputs.assign(output_shapes_.size(), Tensor());
  for (const auto& [input, output] : node_->schema->aliases()) {
    if (!HasInput(input) || !HasOutput(output)) continue;
    outputs[output] = inputs_[input].Reshaped(output_shapes_[output]);
  }
  for (int i = 0; i < num_outputs(); ++i) {
    if (HasOutput(i) && !outputs[i].valid()) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Kernel>> ConcreteNode::Prepare() const {
  return registry().Prepare(*this);
}

absl::StatusOr<std::vector<Tensor>> ConcreteNode::Run() const {
  std::vector<Tensor> outputs;
  if (!node_->schema->aliases().empty() && Alias(outputs)) return outputs;
  if (node_->schema->op_class() != OpClass::kCompute) {
    return absl::UnimplementedError(
        absl::StrCat(DescribeNode(*node_, inputs_), ": the op runs only inside a program"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, Prepare());
  WEFT_ASSIGN_OR_RETURN(outputs, AllocateOutputs());
  const bool on_host = device().info().kind == DeviceKind::kCpu;
  const absl::Status status = on_host ? RunOnHost(*kernel, outputs) : RunOnDevice(*kernel, outputs);
  if (!status.ok()) return Annotate(status, DescribeNode(*node_, inputs_));
  return outputs;
}

absl::Status ConcreteNode::RunOnHost(Kernel& kernel, std::vector<Tensor>& outputs) const {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device().NewStream("node"));
  return RunKernelOnce(kernel, inputs_, outputs, device(), *stream, kNodeRunDeadline);
}

absl::Status ConcreteNode::RunOnDevice(Kernel& kernel, std::vector<Tensor>& outputs) const {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<const void*> input_data(inputs_.size(), nullptr);
  std::vector<void*> output_data(outputs.size(), nullptr);
  Launch launch{&kernel, {}};
  // Declared last: destroying the stream waits for work that uses the above.
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device().NewStream("node"));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].valid()) continue;
    WEFT_ASSIGN_OR_RETURN(buffers.emplace_back(), device().Allocate(inputs_[i].bytes()));
    input_data[i] = buffers.back()->data();
    WEFT_RETURN_IF_ERROR(device().CopyFromHost(*stream, inputs_[i].raw_data(),
                                               buffers.back()->data(), inputs_[i].bytes()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    WEFT_ASSIGN_OR_RETURN(buffers.emplace_back(), device().Allocate(outputs[i].bytes()));
    output_data[i] = buffers.back()->data();
  }
  WEFT_ASSIGN_OR_RETURN(buffers.emplace_back(), device().Allocate(kernel.workspace_bytes()));
  launch.context.inputs = input_data.data();
  launch.context.outputs = output_data.data();
  launch.context.workspace = buffers.back()->data();
  WEFT_RETURN_IF_ERROR(stream->Enqueue(Work{&Launch::Run, &launch}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    WEFT_RETURN_IF_ERROR(
        device().CopyToHost(*stream, output_data[i], outputs[i].raw_data(), outputs[i].bytes()));
  }
  return stream->Synchronize(kNodeRunDeadline);
}

}  // namespace weft
