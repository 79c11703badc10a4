#include "training/adapters/quantized_bases.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The variable with the weight's other names too, so that patterns fit it.
ValueId AddPart(Graph& graph, const Variable& weight, const char* suffix, Tensor value) {
  const ValueType type = {ValueKind::kTensor, value.dtype(), value.shape()};
  std::vector<std::string> others;
  for (const std::string& name : weight.other_names) others.push_back(absl::StrCat(name, suffix));
  const ValueId id = graph.AddVariable(absl::StrCat(weight.name, suffix), type, std::move(value),
                                       /*trainable=*/false);
  graph.mutable_variables().back().other_names = std::move(others);
  return id;
}

absl::Status QuantizeBase(Graph& graph, const BaseQuantization& spec, const NodeId reader,
                          LoraAdapter& adapter) {
  const Variable* const found = graph.FindVariable(adapter.weight);
  if (found == nullptr || !found->initial.valid()) {
    return absl::InternalError("the weight has no value");
  }
  const Variable weight = *found;
  WEFT_ASSIGN_OR_RETURN(QuantizedWeight quantized,
                        QuantizeWeight(weight.initial, spec, adapter.is_transposed ? 0 : 1));
  Attributes attributes = {{"axis", int64_t{quantized.axis}}};
  if (quantized.block > 0) attributes.Set("block_size", quantized.block);
  QuantizedBase base;
  base.axis = quantized.axis;
  base.block = quantized.block;
  const ValueId codes = AddPart(graph, weight, "/codes", std::move(quantized.codes));
  base.codes = graph.value(codes).name;
  const ValueId scales = AddPart(graph, weight, "/scales", std::move(quantized.scales));
  base.scales = graph.value(scales).name;

  const Node& node = graph.node(reader);
  GraphBuilder builder(graph);
  builder.set_name_prefix(absl::StrCat(node.name, "/"));
  builder.set_origin({node.name, graph.value(node.outputs.front()).name, false});
  const ValueId whole = builder.Op("DequantizeLinear", {codes, scales}, std::move(attributes));
  WEFT_RETURN_IF_ERROR(builder.status());
  graph.ReplaceUses(weight.value, whole);
  graph.RemoveVariable(weight.name);
  builder.Name(whole, weight.name);
  adapter.quantized = std::move(base);
  return builder.status();
}

}  // namespace

absl::Status QuantizeBases(Graph& graph, const BaseQuantization& spec,
                           std::vector<LoraAdapter>& adapters) {
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  for (LoraAdapter& adapter : adapters) {
    const Variable* const weight = graph.FindVariable(adapter.weight);
    if (weight == nullptr) {
      return absl::InternalError(absl::StrCat("there is no weight '", adapter.weight, "'"));
    }
    const std::vector<Graph::Use>& readers = uses[weight->value.value];
    if (readers.empty()) {
      return absl::InternalError(absl::StrCat("nothing reads the weight '", adapter.weight, "'"));
    }
    const std::string shown = ShownName(*weight);
    const absl::Status status = QuantizeBase(graph, spec, readers.front().node, adapter);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat("--qlora: the weight '", shown,
                                     "' cannot be quantized: ", std::string(status.message()),
                                     "; leave it out by --lora match=PATTERN of others"));
  }
  return absl::OkStatus();
}

}  // namespace weft
