#include "graph/node_inference.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "graph/schema_check.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Longer integer tensors are data, not shapes.
constexpr int64_t kMaxElements = 64;

bool IsIndexType(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

std::optional<std::vector<Dim>> DimsOfConstant(const Tensor& constant) {
  if (!IsIndexType(constant.dtype()) || constant.shape().rank() > 1 || !constant.is_on_host() ||
      constant.num_elements() > kMaxElements) {
    return std::nullopt;
  }
  const absl::StatusOr<std::vector<int64_t>> elements = ToInt64s(constant);
  if (!elements.ok()) return std::nullopt;
  std::vector<Dim> dims;
  for (const int64_t element : *elements) {
    dims.push_back(element < 0 ? Dim() : Dim(element));  // -1 in a Reshape's shape is no size
  }
  return dims;
}

// Unlike Dim's ==, two unknown dimensions are the same knowledge.
bool SameDims(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return std::ranges::equal(a, b, [](const Dim& x, const Dim& y) {
    return x.is_known() == y.is_known() && (!x.is_known() || x.size() == y.size()) &&
           x.symbol() == y.symbol();
  });
}

bool SameKnowledge(const ValueDef& value, const InferredOutput& inferred) {
  const ValueType& a = value.type;
  const ValueType& b = inferred.type;
  if (a.kind != b.kind || a.dtype != b.dtype) return false;
  if (a.shape.has_rank() != b.shape.has_rank()) return false;
  if (a.shape.has_rank() && !SameDims(a.shape.dims(), b.shape.dims())) return false;
  if (value.elements.has_value() != inferred.elements.has_value()) return false;
  return !value.elements.has_value() || SameDims(*value.elements, *inferred.elements);
}

class NodeInferenceContext final : public InferenceContext {
 public:
  NodeInferenceContext(const Graph& graph, const Node& node, std::vector<InferredOutput>& outputs)
      : graph_(graph), node_(node), outputs_(outputs) {}

  const Node& node() const override { return node_; }

  const ValueType& InputType(int i) const override { return Input(i).type; }

  const Tensor* InputValue(int i) const override {
    if (!HasInput(i)) return nullptr;
    const ValueDef& input = Input(i);
    if (input.source == ValueSource::kConstant) return &input.constant;
    if (!input.elements.has_value()) return nullptr;
    if (const auto made = made_.find(i); made != made_.end()) return &made->second;
    std::optional<Tensor> tensor = TensorOfElements(input.type, *input.elements);
    if (!tensor.has_value()) return nullptr;
    return &made_.emplace(i, *std::move(tensor)).first->second;
  }

  std::optional<std::vector<Dim>> InputDims(int i) const override {
    if (!HasInput(i)) return std::nullopt;
    const ValueDef& input = Input(i);
    if (input.source == ValueSource::kConstant) return DimsOfConstant(input.constant);
    return input.elements;
  }

  void SetOutput(int i, ValueType type) override {
    if (HasOutput(i)) outputs_[i].type = std::move(type);
  }

  void SetOutputDims(int i, std::vector<Dim> dims) override {
    if (HasOutput(i) && static_cast<int64_t>(dims.size()) <= kMaxElements) {
      outputs_[i].elements = std::move(dims);
    }
  }

  absl::Status Error(const std::string& message) const override {
    return absl::InvalidArgumentError(absl::StrCat(DescribeNode(node_), " with inputs ",
                                                   DescribeInputs(graph_, node_), ": ", message));
  }

 private:
  const ValueDef& Input(int i) const { return graph_.value(node_.inputs[i]); }

  const Graph& graph_;
  const Node& node_;
  std::vector<InferredOutput>& outputs_;
  // Values made from elements; a map, since the pointers are handed out.
  mutable std::map<int, Tensor> made_;
};

// Shapes that a shape function makes of absurd inputs end here, before anything multiplies them.
absl::Status CheckOutputShapes(const InferenceContext& context, const Graph& graph,
                               const Node& node, const std::vector<InferredOutput>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const SymbolicShape& shape = outputs[i].type.shape;
    if (!shape.has_rank() || !node.outputs[i].valid()) continue;
    Shape known;
    for (const Dim& dim : shape.dims()) {
      if (dim.is_known()) known.AddDim(dim.size());
    }
    if (shape.rank() <= kMaxRank && Shape::Create(known.dims()).ok()) continue;
    return context.Error(absl::StrCat("its output '", graph.value(node.outputs[i]).name,
                                      "' would be of shape ", shape.ToString(),
                                      ", expected at most ", kMaxRank,
                                      " dimensions, each up to 2^40, and fewer than 2^63 "
                                      "elements"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<Tensor> TensorOfElements(const ValueType& type, const std::vector<Dim>& elements) {
  if (!IsIndexType(type.dtype) || !type.shape.has_rank() || type.shape.rank() > 1) {
    return std::nullopt;
  }
  if (type.shape.rank() == 0 && elements.size() != 1) return std::nullopt;
  std::vector<int64_t> values;
  for (const Dim& element : elements) {
    if (!element.is_known()) return std::nullopt;
    values.push_back(element.size());
  }
  const Shape shape =
      type.shape.rank() == 0 ? Shape{} : Shape{static_cast<int64_t>(elements.size())};
  if (type.dtype == DType::kInt64) return Tensor::Of<int64_t>(shape, values);
  return Tensor::Of<int32_t>(shape, std::vector<int32_t>(values.begin(), values.end()));
}

absl::Status RunShapeFunction(const Graph& graph, const Node& node,
                              std::vector<InferredOutput>& outputs) {
  outputs.assign(node.outputs.size(), {});
  NodeInferenceContext context(graph, node, outputs);
  const absl::Status status = node.schema->infer()(context);
  if (status.ok()) return CheckOutputShapes(context, graph, node, outputs);
  const std::string message(status.message());
  // A shape function may hand on an error of a helper that knows no node.
  if (message.starts_with("node '")) return status;
  return absl::Status(status.code(), context.Error(message).message());
}

absl::StatusOr<bool> InferInto(Graph& graph, const Node& node,
                               std::vector<InferredOutput>& scratch) {
  if (node.schema == nullptr || !node.schema->infer()) return false;
  WEFT_RETURN_IF_ERROR(CheckNodeAgainstSchema(graph, node));
  WEFT_RETURN_IF_ERROR(RunShapeFunction(graph, node, scratch));
  bool changed = false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    ValueDef& value = graph.value(node.outputs[i]);
    changed = changed || !SameKnowledge(value, scratch[i]);
    value.type = std::move(scratch[i].type);
    value.elements = std::move(scratch[i].elements);
  }
  return changed;
}

}  // namespace weft
