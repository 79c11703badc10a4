#include "ops/fusion/fused_node.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kNamedParts = 8;

absl::Status InferFused(InferenceContext& context) {
  const Graph& body = FusedBodyOf(context.node());
  size_t given = 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    if (given == body.inputs().size()) return context.Error("its body has fewer inputs");
    const ValueType& expected = body.value(body.inputs()[given++]).type;
    const ValueType& type = context.InputType(i);
    if (type.dtype == expected.dtype && type.shape == expected.shape) continue;
    return context.Error(absl::StrCat("input ", i, " is ", type.ToString(), ", its body takes ",
                                      expected.ToString()));
  }
  if (given != body.inputs().size()) return context.Error("its body has more inputs");
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, body.value(body.outputs()[i]).type);
  }
  return absl::OkStatus();
}

// The parts, with the inputs of the node in place of the body's.
absl::StatusOr<std::vector<ValueId>> ExpandFused(ExpandContext& context) {
  const Graph& body = FusedBodyOf(context.node());
  GraphBuilder& builder = context.builder();
  std::map<ValueId, ValueId> outside;
  size_t given = 0;
  for (const ValueId input : context.node().inputs) {
    if (input.valid()) outside[body.inputs()[given++]] = input;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, body.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& part = body.node(id);
    std::vector<ValueId> inputs;
    for (const ValueId input : part.inputs) {
      inputs.push_back(kNoValue);
      if (!input.valid()) continue;
      auto [known, is_new] = outside.try_emplace(input);
      if (is_new) known->second = builder.Constant(body.value(input).constant);
      inputs.back() = known->second;
    }
    std::vector<bool> wanted;
    for (const ValueId output : part.outputs) wanted.push_back(output.valid());
    const std::vector<ValueId> outputs =
        builder.Ops(part.domain, part.op, std::move(inputs), part.attributes, wanted);
    WEFT_RETURN_IF_ERROR(builder.status());
    for (size_t i = 0; i < part.outputs.size(); ++i) {
      if (part.outputs[i].valid()) outside[part.outputs[i]] = outputs[i];
    }
  }
  std::vector<ValueId> results;
  for (const ValueId output : body.outputs()) results.push_back(outside.at(output));
  return results;
}

void DescribeParts(OpSchema& schema) {
  schema.VariadicInput("operands")
      .VariadicOutput("results")
      .Attr(kFusedBody, AttributeType::kGraph, /*required=*/true)
      .Infer(InferFused)
      .Expand(ExpandFused)
      .NoGradient("made after differentiation");
}

}  // namespace

const OpSchema& FusedSchema() {
  static const auto* const schema = [] {
    auto* const made = new OpSchema(OpSchema::Weft(kFusedOp));
    for (int i = 0; i < kFusedInPlace; ++i) made->OptionalInput(absl::StrCat("over_", i));
    DescribeParts(*made);
    for (int i = 0; i < kFusedInPlace; ++i) made->InPlace(i, i);
    return made;
  }();
  return *schema;
}

const OpSchema& JoinedProductSchema() {
  static const auto* const schema = [] {
    auto* const made = new OpSchema(OpSchema::Weft(kJoinedProductOp));
    DescribeParts(*made);
    return made;
  }();
  return *schema;
}

const Graph& FusedBodyOf(const Node& node) {
  return *std::get<std::shared_ptr<Graph>>(*node.attributes.Find(kFusedBody));
}

std::string FusedParts(const Graph& body) {
  std::string text;
  int named = 0;
  for (const NodeId id : body.node_ids()) {
    if (named == kNamedParts) {
      absl::StrAppend(&text, " and ", body.num_nodes() - named, " more");
      break;
    }
    absl::StrAppend(&text, named++ == 0 ? "" : ", ", "'", body.node(id).name, "' (",
                    body.node(id).op, ")");
  }
  return text;
}

}  // namespace weft
