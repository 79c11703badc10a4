#include "placement/graph_views/graph_node_view.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"

namespace weft {

absl::StatusOr<GraphNodeView> GraphNodeView::Create(const Graph& graph, const Node& node) {
  GraphNodeView view(graph, node);
  const auto collect = [&](const std::vector<ValueId>& values, std::vector<Shape>& shapes) {
    for (ValueId id : values) {
      const std::optional<Shape> shape =
          id.valid() ? graph.value(id).type.shape.ToConcrete() : Shape();
      if (!shape.has_value()) {
        return absl::InternalError(
            absl::StrCat(DescribeNode(node), ": the shape of '", graph.value(id).name, "', ",
                         graph.value(id).type.ToString(), ", is not concrete"));
      }
      shapes.push_back(*shape);
    }
    return absl::OkStatus();
  };
  if (absl::Status status = collect(node.inputs, view.input_shapes_); !status.ok()) return status;
  if (absl::Status status = collect(node.outputs, view.output_shapes_); !status.ok()) return status;
  return view;
}

const Shape& GraphNodeView::ShapeAt(const std::vector<Shape>& shapes, int i) {
  static const auto* const none = new Shape();
  return i >= 0 && i < static_cast<int>(shapes.size()) ? shapes[i] : *none;
}

DType GraphNodeView::DTypeAt(const std::vector<ValueId>& values, int i) const {
  const bool is_there = i >= 0 && i < static_cast<int>(values.size()) && values[i].valid();
  return is_there ? graph_->value(values[i]).type.dtype : DType::kInvalid;
}

const Tensor* GraphNodeView::InputValue(int i) const {
  if (!HasInput(i)) return nullptr;
  const ValueDef& value = graph_->value(node_->inputs[i]);
  return value.source == ValueSource::kConstant ? &value.constant : nullptr;
}

Shape ShapeOf(const Graph& graph, ValueId value) {
  return graph.value(value).type.shape.ToConcrete().value_or(Shape());
}

int64_t BytesOf(const Graph& graph, ValueId value) {
  return DTypeBytes(graph.value(value).type.dtype, ShapeOf(graph, value).num_elements());
}

}  // namespace weft
