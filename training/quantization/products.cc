#include "training/quantization/products.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/op_schema.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kWeightOperand = 1;

bool IsOwnOp(const Node& node, const char* op) { return node.domain.empty() && node.op == op; }

// The value behind Transpose nodes; axis i of `value` is axis axes[i] of it.
struct Source {
  ValueId value;
  std::vector<int> axes;
};

std::optional<Source> SourceOf(const Graph& graph, ValueId value) {
  const SymbolicShape& shape = graph.value(value).type.shape;
  if (!shape.has_rank()) return std::nullopt;
  Source source{value, std::vector<int>(shape.rank())};
  std::iota(source.axes.begin(), source.axes.end(), 0);
  while (graph.value(source.value).source == ValueSource::kNode) {
    const Node& node = graph.node(graph.value(source.value).producer);
    if (!IsOwnOp(node, "Transpose")) return std::nullopt;
    std::vector<int64_t> order = node.attributes.Ints("perm");
    if (order.empty()) {
      for (int i = shape.rank() - 1; i >= 0; --i) order.push_back(i);
    }
    if (static_cast<int>(order.size()) != shape.rank()) return std::nullopt;
    for (int& axis : source.axes) axis = static_cast<int>(order[axis]);
    source.value = node.inputs[0];
  }
  return source;
}

// The axes of the second operand: that of output channels, and the contracted one.
std::optional<std::pair<int, int>> OperandAxes(const Node& node, int rank) {
  if (IsOwnOp(node, "Conv") && rank > 2) return std::pair(0, 1);
  if (IsOwnOp(node, "MatMul") && rank == 2) return std::pair(1, 0);
  if (!IsOwnOp(node, "Gemm") || rank != 2) return std::nullopt;
  return node.attributes.Int("transB", 0) != 0 ? std::pair(0, 1) : std::pair(1, 0);
}

}  // namespace

absl::StatusOr<std::vector<WeightProduct>> WeightProductsOf(const ImportedModel& model) {
  const Graph& graph = model.graph;
  const std::set<std::string> in_file = MainGraphProducts(model.file);
  std::set<std::string> stored;
  for (const ImportedParameter& parameter : model.parameters) {
    const bool in_graph = parameter.storage != ParameterStorage::kAlgorithmInitializer;
    if (in_graph && parameter.dtype == DType::kFloat32) stored.insert(parameter.name);
  }
  std::vector<WeightProduct> products;
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (node.inputs.size() <= kWeightOperand ||
        !in_file.contains(graph.value(node.outputs[0]).name)) {
      continue;
    }
    const std::optional<Source> source = SourceOf(graph, node.inputs[kWeightOperand]);
    if (!source.has_value()) continue;
    const auto axes = OperandAxes(node, static_cast<int>(source->axes.size()));
    const Variable* const variable = graph.VariableOf(source->value);
    const bool fits = axes.has_value() && variable != nullptr && stored.contains(variable->name) &&
                      graph.value(source->value).type.shape.ToConcrete().has_value();
    if (!fits) continue;
    WeightProduct product{id, source->value, source->axes[axes->first], source->axes[axes->second],
                          NamesOf(*variable)};
    product.names.insert(product.names.begin(), node.name);
    products.push_back(std::move(product));
  }
  return products;
}

}  // namespace weft
