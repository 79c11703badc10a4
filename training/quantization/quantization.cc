#include "training/quantization/quantization.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/graph_builder.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"
#include "training/quantization/products.h"

namespace weft {
namespace {

// Of the ranges: an average over about the last 20 steps.
constexpr float kRangeDecay = 0.95f;
constexpr int64_t kRangeSize = 3;
// So many weights are told of each reason.
constexpr size_t kMaxTold = 4;

struct KindEntry {
  QuantizationKind kind;
  const char* name;
  DType weight;
  DType activation;  // kInvalid: they stay float
};
constexpr KindEntry kKinds[] = {
    {QuantizationKind::kInt8, "int8", DType::kInt8, DType::kUint8},
    {QuantizationKind::kInt4, "int4", DType::kInt4, DType::kInvalid},
    {QuantizationKind::kFp8, "fp8", DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fn},
};

const KindEntry& EntryOf(QuantizationKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [kind](const KindEntry& entry) { return entry.kind == kind; });
}

bool FitsOne(const std::string& pattern, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&pattern](const std::string& name) {
    return name == pattern || MatchesPattern(pattern, name);
  });
}

absl::Status CheckIsFloat(const Graph& graph) {
  const std::set<std::string> quantized = {"QuantizeLinear", "DequantizeLinear",
                                           "DynamicQuantizeLinear"};
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!node.domain.empty() || !quantized.contains(node.op)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--qat: the model is quantized already, node '",
                                                   node.name, "' is ", node.op,
                                                   "; give the float model that it was made of"));
  }
  return absl::OkStatus();
}

// The products that a pattern skips, by node.
absl::StatusOr<std::set<NodeId>> SkippedOf(const std::vector<WeightProduct>& products,
                                           const std::vector<std::string>& patterns) {
  std::set<NodeId> skipped;
  std::set<ValueId> weights;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const WeightProduct& product : products) {
      if (!FitsOne(pattern, product.names)) continue;
      any = true;
      weights.insert(product.weight);
    }
    if (any) continue;
    std::vector<std::string> names;
    for (const WeightProduct& product : products) {
      names.insert(names.end(), product.names.begin(), product.names.end());
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--qat-skip ", pattern, " fits no product that would be quantized, and no ",
                     "weight of one", DidYouMean(pattern, names)));
  }
  for (const WeightProduct& product : products) {
    if (weights.contains(product.weight)) skipped.insert(product.node);
  }
  return skipped;
}

// Puts nodes behind the weights and before the first operands of some products.
class QuantizationPass {
 public:
  QuantizationPass(Graph& graph, Quantization& result)
      : graph_(graph), result_(result), builder_(graph), entry_(EntryOf(result.spec.kind)) {}

  absl::Status AddWeight(const std::vector<const WeightProduct*>& readers) {
    const WeightProduct& first = *readers.front();
    const std::string name = graph_.VariableOf(first.weight)->name;
    Quantization::Weight weight{name, entry_.weight, true, first.channel_axis, 0};
    const Shape shape = *graph_.value(first.weight).type.shape.ToConcrete();
    const int64_t block = result_.spec.block;
    if (result_.spec.kind == QuantizationKind::kInt4 && shape.dim(first.contracted_axis) >= block) {
      weight.axis = first.contracted_axis;
      weight.block = block;
    } else {
      weight.has_axis = std::all_of(readers.begin(), readers.end(), [&](const auto* reader) {
        return reader->channel_axis == first.channel_axis;
      });
    }
    Attributes attributes = {{"to", static_cast<int64_t>(weight.codes)}};
    if (weight.has_axis) attributes.Set("axis", weight.axis);
    if (weight.block > 0) attributes.Set("block_size", weight.block);
    SetPlace(graph_.node(first.node).name, name);
    const ValueId quantized =
        builder_.WeftOp("FakeQuantizeWeight", {first.weight}, std::move(attributes));
    WEFT_RETURN_IF_ERROR(builder_.status());
    graph_.ReplaceUses(first.weight, quantized);
    graph_.node(graph_.value(quantized).producer).inputs.front() = first.weight;
    result_.weights.push_back(std::move(weight));
    return absl::OkStatus();
  }

  absl::Status AddInput(ValueId value, const std::vector<NodeId>& readers) {
    const std::string name = graph_.value(value).name;
    const ValueId range =
        graph_.AddVariable(absl::StrCat(name, "/range"),
                           {ValueKind::kTensor, DType::kFloat32, Shape{kRangeSize}}, Tensor(),
                           /*trainable=*/false);
    Quantization::Input input{name, graph_.value(range).name, entry_.activation, {}};
    SetPlace(graph_.node(readers.front()).name, name);
    const ValueId quantized = builder_.WeftOp("FakeQuantize", {value, range},
                                              {{"to", static_cast<int64_t>(entry_.activation)}});
    WEFT_RETURN_IF_ERROR(builder_.status());
    for (const NodeId reader : readers) {
      graph_.node(reader).inputs.front() = quantized;
      input.readers.push_back(graph_.value(graph_.node(reader).outputs.front()).name);
    }
    result_.inputs.push_back(std::move(input));
    return absl::OkStatus();
  }

  bool quantizes_inputs() const { return entry_.activation != DType::kInvalid; }

 private:
  void SetPlace(const std::string& node, const std::string& value) {
    builder_.set_name_prefix(absl::StrCat(value, "/quantized/"));
    builder_.set_origin({node, value, false});
  }

  Graph& graph_;
  Quantization& result_;
  GraphBuilder builder_;
  const KindEntry& entry_;
};

// What `quantization` says of the graph, done to it.
absl::Status QuantizeProducts(Graph& graph, const std::vector<WeightProduct>& products,
                              Quantization& result) {
  std::vector<ValueId> weights, inputs;
  std::map<ValueId, std::vector<const WeightProduct*>> readers_of_weight;
  std::map<ValueId, std::vector<NodeId>> readers_of_input;
  for (const WeightProduct& product : products) {
    auto& weight_readers = readers_of_weight[product.weight];
    if (weight_readers.empty()) weights.push_back(product.weight);
    weight_readers.push_back(&product);
    const ValueId input = graph.node(product.node).inputs.front();
    const ValueDef& def = graph.value(input);
    const bool is_computed = def.source == ValueSource::kNode || def.source == ValueSource::kInput;
    if (!is_computed || def.type.dtype != DType::kFloat32) continue;
    auto& input_readers = readers_of_input[input];
    if (input_readers.empty()) inputs.push_back(input);
    input_readers.push_back(product.node);
  }
  QuantizationPass pass(graph, result);
  if (pass.quantizes_inputs()) {
    for (const ValueId input : inputs) {
      WEFT_RETURN_IF_ERROR(pass.AddInput(input, readers_of_input[input]));
    }
  }
  for (const ValueId weight : weights) {
    WEFT_RETURN_IF_ERROR(pass.AddWeight(readers_of_weight[weight]));
  }
  return absl::OkStatus();
}

std::string Counted(int64_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// "'a', 'b' (--qat-skip), 'c' (first operand)": reasons in the order in which they come up.
std::string FloatText(const std::vector<FloatWeight>& weights) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const FloatWeight& weight : weights) {
    auto entry = std::find_if(by_reason.begin(), by_reason.end(),
                              [&weight](const auto& one) { return one.first == weight.reason; });
    if (entry == by_reason.end()) entry = by_reason.insert(entry, {weight.reason, {}});
    entry->second.push_back(absl::StrCat("'", weight.name, "'"));
  }
  std::vector<std::string> parts;
  for (auto& [reason, names] : by_reason) {
    const size_t untold = names.size() - std::min(names.size(), kMaxTold);
    names.resize(names.size() - untold);
    parts.push_back(absl::StrCat(absl::StrJoin(names, ", "),
                                 untold > 0 ? absl::StrCat(" and ", untold, " more") : "", " (",
                                 reason, ")"));
  }
  return absl::StrJoin(parts, ", ");
}

absl::Status NothingToQuantize(bool skips, const std::vector<FloatWeight>& unfit) {
  if (skips) {
    return absl::InvalidArgumentError(
        "--qat: there is nothing to quantize: --qat-skip names all products");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--qat: there is nothing to quantize: the model has no Conv, Gemm or MatMul whose second "
      "operand is a float32 weight",
      unfit.empty() ? "" : absl::StrCat("; there are ", FloatText(unfit))));
}

}  // namespace

std::vector<std::string> QuantizationKinds() {
  std::vector<std::string> names;
  for (const KindEntry& entry : kKinds) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<QuantizationSpec> ParseQuantization(const std::string& kind, int64_t block,
                                                   std::vector<std::string> skip) {
  if (block < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--qat-block ", block, ": expected a number of weights, as 32 or 64"));
  }
  for (const KindEntry& entry : kKinds) {
    if (kind == entry.name) return QuantizationSpec{entry.kind, block, std::move(skip)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--qat ", kind, ": no such kind", DidYouMean(kind, QuantizationKinds()),
                   "; there are: ", absl::StrJoin(QuantizationKinds(), ", ")));
}

int64_t Quantization::CodeBytes(const Graph& graph) const {
  int64_t bytes = 0;
  for (const Weight& weight : weights) {
    const Variable* const variable = graph.FindVariable(weight.name);
    if (variable == nullptr) continue;
    const auto shape = graph.value(variable->value).type.shape.ToConcrete();
    if (!shape.has_value()) continue;
    int64_t scales = weight.has_axis ? shape->dim(static_cast<int>(weight.axis)) : 1;
    if (weight.block > 0) {
      const int64_t blocks = (scales + weight.block - 1) / weight.block;
      scales = scales > 0 ? shape->num_elements() / scales * blocks : 0;
    }
    // A zero point is as large as a code.
    bytes += DTypeBytes(weight.codes, shape->num_elements()) +
             scales * (DTypeBytes(DType::kFloat32, 1) + 1);
  }
  return bytes;
}

std::string Quantization::ToString() const {
  if (empty()) return "";
  std::string text =
      absl::StrCat("qat    ", EntryOf(spec.kind).name, ": ", Counted(products, "product"), ", ",
                   Counted(static_cast<int64_t>(weights.size()), "weight"));
  if (!inputs.empty()) {
    absl::StrAppend(&text, ", ", Counted(static_cast<int64_t>(inputs.size()), "input"));
  }
  if (!left_float.empty()) {
    absl::StrAppend(&text, "; ", Counted(static_cast<int64_t>(left_float.size()), "weight"),
                    left_float.size() == 1 ? " stays" : " stay", " float: ", FloatText(left_float));
  }
  return text + "\n";
}

absl::StatusOr<Quantization> AddQuantization(ImportedModel& model, const QuantizationSpec& spec) {
  Graph& graph = model.graph;
  WEFT_RETURN_IF_ERROR(CheckIsFloat(graph));
  WEFT_ASSIGN_OR_RETURN(WeightProducts found, WeightProductsOf(model));
  WEFT_ASSIGN_OR_RETURN(const std::set<NodeId> skipped, SkippedOf(found.products, spec.skip));
  Quantization result;
  result.spec = spec;
  std::vector<WeightProduct> quantized;
  std::set<ValueId> told;
  for (WeightProduct& product : found.products) {
    if (!skipped.contains(product.node)) {
      quantized.push_back(std::move(product));
    } else if (told.insert(product.weight).second) {
      result.left_float.push_back({graph.VariableOf(product.weight)->name, "--qat-skip"});
    }
  }
  if (quantized.empty()) return NothingToQuantize(!skipped.empty(), found.unfit);
  result.left_float.insert(result.left_float.end(), found.unfit.begin(), found.unfit.end());
  result.products = static_cast<int64_t>(quantized.size());
  WEFT_RETURN_IF_ERROR(QuantizeProducts(graph, quantized, result));
  return result;
}

absl::Status AddRangeUpdates(Graph& graph) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.domain != kWeftDomain || node.op != "FakeQuantize") continue;
    const Variable* const variable = graph.VariableOf(node.inputs[1]);
    if (variable == nullptr || variable->update.valid()) continue;
    const std::string name = variable->name;
    const Origin origin = {node.name, name, false};
    const ValueId range = node.inputs[1];
    GraphBuilder forward(graph);
    forward.set_origin(origin);
    forward.set_name_prefix(absl::StrCat(name, "/"));
    const ValueId rows = forward.WeftOp("RangeOfBatch", {node.inputs[0]});
    WEFT_RETURN_IF_ERROR(forward.status());
    GraphBuilder step(graph);
    step.set_phase(Phase::kUpdate);
    step.set_origin(origin);
    step.set_name_prefix(absl::StrCat("update/", name, "/"));
    const ValueId all = step.WeftOp("Accumulate", {rows});
    const ValueId next = step.WeftOp("UpdateRange", {range, all}, {{"decay", kRangeDecay}});
    WEFT_RETURN_IF_ERROR(step.status());
    graph.SetVariableUpdate(name, next);
  }
  return absl::OkStatus();
}

}  // namespace weft
