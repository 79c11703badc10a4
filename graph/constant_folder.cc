#include "graph/constant_folder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool MayFold(const Node& node) {
  if (node.schema == nullptr || node.schema->stateful() || node.outputs.empty() ||
      node.schema->op_class() != OpClass::kCompute) {
    return false;
  }
  return std::ranges::none_of(node.attributes.items(), [](const auto& item) {
    return TypeOf(item.second) == AttributeType::kGraph;
  });
}

bool IsAligned(const Tensor& tensor) {
  if (!tensor.valid() || tensor.dtype() == DType::kString) return true;
  const auto element = static_cast<uintptr_t>(DTypeBytes(tensor.dtype(), 1));
  return reinterpret_cast<uintptr_t>(tensor.raw_data()) % element == 0;
}

bool InputsAreConstant(const Graph& graph, const Node& node) {
  return std::ranges::all_of(node.inputs, [&graph](ValueId id) {
    return !id.valid() || graph.value(id).source == ValueSource::kConstant;
  });
}

int64_t InputBytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (const ValueId id : node.inputs) {
    if (id.valid()) bytes += static_cast<int64_t>(graph.value(id).constant.bytes());
  }
  return bytes;
}

// Whether a tensor without elements has an axis so long that a kernel which walks it, or makes a
// table of it, would not come back.
bool IsLongThoughEmpty(const Shape& shape) {
  if (shape.num_elements() > 0) return false;
  int64_t extent = 1;
  for (const int64_t dim : shape.dims()) {
    if (__builtin_mul_overflow(extent, std::max<int64_t>(dim, 1), &extent)) return true;
  }
  return extent > kMaxFoldedBytes;
}

// Bytes of the outputs if each is at most kMaxFoldedBytes, else nothing. An output whose size
// depends on data counts as sixteen times the inputs (indices of their elements, and the like).
std::optional<int64_t> FoldedBytes(const Graph& graph, const Node& node) {
  for (const ValueId id : node.inputs) {
    if (id.valid() && IsLongThoughEmpty(graph.value(id).constant.shape())) return std::nullopt;
  }
  int64_t total = 0;
  for (const ValueId id : node.outputs) {
    if (!id.valid()) continue;
    const ValueType& type = graph.value(id).type;
    if (type.kind != ValueKind::kTensor) return std::nullopt;
    int64_t bytes = 16 * InputBytes(graph, node);
    if (const std::optional<Shape> shape = type.shape.ToConcrete()) {
      if (!Shape::Create(shape->dims()).ok()) return std::nullopt;  // beyond counting
      const int64_t elements = shape->num_elements();
      if (elements > kMaxFoldedBytes || IsLongThoughEmpty(*shape)) return std::nullopt;
      bytes = DTypeBytes(type.dtype, elements);
    }
    if (bytes > kMaxFoldedBytes) return std::nullopt;
    total += bytes;
  }
  return total;
}

// A kernel's result must be what the shape function promised.
absl::Status CheckResult(const ValueDef& value, const Tensor& result) {
  const std::optional<Shape> shape = value.type.shape.ToConcrete();
  const bool fits = result.valid() && result.dtype() == value.type.dtype &&
                    (!shape.has_value() || *shape == result.shape());
  if (fits) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("its kernel made ", result.ToString(), " for '",
                                          value.name, "', which its shape function says is ",
                                          value.type.ToString()));
}

}  // namespace

absl::StatusOr<bool> ConstantFolder::Fold(NodeId id) {
  const Node& node = graph_.node(id);
  if (!MayFold(node)) return false;
  if (FoldFromElements(node)) return true;
  if (!InputsAreConstant(graph_, node)) return false;
  const std::optional<int64_t> bytes = FoldedBytes(graph_, node);
  if (!bytes.has_value() || *bytes > budget_bytes_) {
    Refuse(node, absl::ResourceExhaustedError(absl::StrCat("too large to be computed ahead (limit ",
                                                           kMaxFoldedBytes, " bytes)")));
    return false;
  }
  absl::StatusOr<std::vector<Tensor>> results = Evaluate(node);
  if (absl::IsUnimplemented(results.status()) || absl::IsResourceExhausted(results.status())) {
    Refuse(node, results.status());
    return false;
  }
  if (!results.ok()) return Annotate(results.status(), DescribeNode(node));
  budget_bytes_ -= *bytes;
  MakeConstants(node, *std::move(results));
  return true;
}

absl::StatusOr<std::vector<Tensor>> ConstantFolder::Evaluate(const Node& node) const {
  std::vector<Tensor> inputs;
  for (const ValueId id : node.inputs) {
    inputs.push_back(id.valid() ? graph_.value(id).constant : Tensor());
    // What comes from a file need not be aligned, and kernels take it that it is.
    if (IsAligned(inputs.back())) continue;
    WEFT_ASSIGN_OR_RETURN(inputs.back(), inputs.back().Clone());
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> results, evaluator_.Evaluate(graph_, node, inputs));
  results.resize(node.outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    WEFT_RETURN_IF_ERROR(CheckResult(graph_.value(node.outputs[i]), results[i]));
  }
  return results;
}

bool ConstantFolder::FoldFromElements(const Node& node) {
  std::vector<Tensor> tensors;
  bool any = false;
  for (const ValueId id : node.outputs) {
    tensors.emplace_back();
    if (!id.valid()) continue;
    const ValueDef& value = graph_.value(id);
    if (!value.elements.has_value()) return false;
    std::optional<Tensor> tensor = TensorOfElements(value.type, *value.elements);
    if (!tensor.has_value()) return false;
    tensors.back() = *std::move(tensor);
    any = true;
  }
  if (any) MakeConstants(node, std::move(tensors));
  return any;
}

void ConstantFolder::MakeConstants(const Node& node, std::vector<Tensor> tensors) {
  const std::vector<ValueId> outputs = node.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) graph_.MakeConstant(outputs[i], std::move(tensors[i]));
  }
  graph_.RemoveNode(node.id);
}

void ConstantFolder::Refuse(const Node& node, const absl::Status& why) {
  for (const ValueId id : node.outputs) {
    if (id.valid()) refusals_[id] = Annotate(why, DescribeNode(node));
  }
}

absl::Status ConstantFolder::RefusalOf(ValueId output) const {
  const auto found = refusals_.find(output);
  return found == refusals_.end() ? absl::OkStatus() : found->second;
}

}  // namespace weft
