#include "training/quantization/products.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kWeightOperand = 1;

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

// Whose weights are not looked for among second operands.
bool IsOtherProduct(const Node& node) {
  constexpr const char* kOps[] = {"ConvTranspose", "DeformConv", "Einsum", "GRU", "LSTM", "RNN"};
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&node](const char* op) { return IsOwnOp(node, op); });
}

class ProductFinder {
 public:
  explicit ProductFinder(const ImportedModel& model)
      : graph_(model.graph), in_file_(MainGraphProducts(model.file)) {
    for (const ImportedParameter& parameter : model.parameters) {
      const bool in_graph = parameter.storage != ParameterStorage::kAlgorithmInitializer;
      if (in_graph && IsFloatingPoint(parameter.dtype)) stored_[parameter.name] = parameter.dtype;
    }
  }

  void Look(NodeId id) {
    const Node& node = graph_.node(id);
    const bool is_product =
        IsOwnOp(node, "Conv") || IsOwnOp(node, "Gemm") || IsOwnOp(node, "MatMul");
    if (!is_product && !IsOtherProduct(node)) return;
    const size_t operands = std::min<size_t>(node.inputs.size(), is_product ? 2 : 3);
    for (size_t operand = 0; operand < operands; ++operand) {
      if (!node.inputs[operand].valid()) continue;
      const std::optional<Source> source = SourceOf(graph_, node.inputs[operand]);
      if (!source.has_value()) continue;
      // Biases of the others are no weights.
      if (!is_product && source->axes.size() < 2) continue;
      const Variable* const variable = graph_.VariableOf(source->value);
      if (variable == nullptr || !stored_.contains(variable->name)) continue;
      const auto axes = OperandAxes(node, static_cast<int>(source->axes.size()));
      const std::string obstacle =
          is_product ? ObstacleOf(node, operand, *source, *variable, axes.has_value())
                     : absl::StrCat("read by ", node.op);
      if (!obstacle.empty()) {
        if (variable->trainable) unfit_.emplace_back(source->value, obstacle);
        continue;
      }
      WeightProduct product{id, source->value, source->axes[axes->first],
                            source->axes[axes->second], NamesOf(*variable)};
      product.names.insert(product.names.begin(), node.name);
      found_.products.push_back(std::move(product));
    }
  }

  WeightProducts Take() {
    std::set<ValueId> told;
    for (const WeightProduct& product : found_.products) told.insert(product.weight);
    for (auto& [weight, reason] : unfit_) {
      if (!told.insert(weight).second) continue;
      found_.unfit.push_back({graph_.VariableOf(weight)->name, std::move(reason)});
    }
    return std::move(found_);
  }

 private:
  // Why the operand of a product cannot be quantized; "" where it can.
  std::string ObstacleOf(const Node& node, size_t operand, const Source& source,
                         const Variable& variable, bool has_axes) const {
    if (operand != kWeightOperand) return "first operand";
    if (!in_file_.contains(graph_.value(node.outputs[0]).name)) return "not of the main graph";
    const DType dtype = stored_.at(variable.name);
    if (dtype != DType::kFloat32) return std::string(DTypeName(dtype));
    const size_t rank = source.axes.size();
    if (!has_axes) return rank == 1 ? "a vector" : absl::StrCat(rank, " axes");
    const bool is_known = graph_.value(source.value).type.shape.ToConcrete().has_value();
    return is_known ? "" : "of unknown shape";
  }

  const Graph& graph_;
  const std::set<std::string> in_file_;
  std::map<std::string, DType> stored_;  // types of the file's floats, by name
  std::vector<std::pair<ValueId, std::string>> unfit_;
  WeightProducts found_;
};

}  // namespace

absl::StatusOr<WeightProducts> WeightProductsOf(const ImportedModel& model) {
  ProductFinder finder(model);
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, model.graph.TopologicalOrder());
  for (const NodeId id : order) finder.Look(id);
  return finder.Take();
}

}  // namespace weft
