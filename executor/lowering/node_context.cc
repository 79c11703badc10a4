#include "executor/lowering/node_context.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<Shape> ConcreteShape(const Graph& graph, ValueId id) {
  const ValueDef& value = graph.value(id);
  if (value.type.kind != ValueKind::kTensor) {
    return absl::UnimplementedError(
        absl::StrCat("value '", value.name, "' is a sequence or optional; programs carry tensors"));
  }
  std::optional<Shape> shape = value.type.shape.ToConcrete();
  if (!shape || value.type.dtype == DType::kInvalid) {
    return absl::InvalidArgumentError(absl::StrCat("value '", value.name, "' has type ",
                                                   value.type.ToString(),
                                                   ", expected a concrete one before compiling"));
  }
  return *std::move(shape);
}

absl::Status FillSlices(const Graph& graph, const std::vector<ValueId>& values,
                        std::vector<Shape>& shapes, std::vector<OperandSlice>& slices) {
  for (ValueId id : values) {
    Shape shape;
    OperandSlice slice;
    if (id.valid()) {
      WEFT_ASSIGN_OR_RETURN(shape, ConcreteShape(graph, id));
      slice.global_shape = shape;
      slice.offset.assign(shape.rank(), 0);
      if (const auto& shard = graph.value(id).placement; shard.has_value()) {
        slice.global_shape = shard->global_shape;
        slice.offset = shard->offset;
      }
    }
    shapes.push_back(std::move(shape));
    slices.push_back(std::move(slice));
  }
  return absl::OkStatus();
}

const Shape& ShapeAt(const std::vector<Shape>& shapes, int i) {
  static const Shape* const kAbsent = new Shape;
  return i < static_cast<int>(shapes.size()) ? shapes[i] : *kAbsent;
}

const OperandSlice& SliceAt(const std::vector<OperandSlice>& slices, int i) {
  static const OperandSlice* const kAbsent = new OperandSlice;
  return i < static_cast<int>(slices.size()) ? slices[i] : *kAbsent;
}

}  // namespace

absl::StatusOr<NodeContext> NodeContext::Create(const Graph& graph, const Node& node,
                                                const Settings& settings) {
  NodeContext context(graph, node, settings);
  WEFT_RETURN_IF_ERROR(FillSlices(graph, node.inputs, context.input_shapes_, context.inputs_));
  WEFT_RETURN_IF_ERROR(FillSlices(graph, node.outputs, context.output_shapes_, context.outputs_));
  return context;
}

const Shape& NodeContext::InputShape(int i) const { return ShapeAt(input_shapes_, i); }
const Shape& NodeContext::OutputShape(int i) const { return ShapeAt(output_shapes_, i); }

DType NodeContext::InputDType(int i) const {
  return HasInput(i) ? graph_->value(node_->inputs[i]).type.dtype : DType::kInvalid;
}

DType NodeContext::OutputDType(int i) const {
  return HasOutput(i) ? graph_->value(node_->outputs[i]).type.dtype : DType::kInvalid;
}

const Tensor* NodeContext::InputValue(int i) const {
  if (!HasInput(i)) return nullptr;
  const ValueDef& value = graph_->value(node_->inputs[i]);
  return value.source == ValueSource::kConstant ? &value.constant : nullptr;
}

const OperandSlice& NodeContext::InputSlice(int i) const { return SliceAt(inputs_, i); }
const OperandSlice& NodeContext::OutputSlice(int i) const { return SliceAt(outputs_, i); }

absl::StatusOr<int64_t> ValueBytes(const Graph& graph, ValueId value) {
  WEFT_ASSIGN_OR_RETURN(Shape shape, ConcreteShape(graph, value));
  return DTypeBytes(graph.value(value).type.dtype, shape.num_elements());
}

}  // namespace weft
