#include "graph/schema_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

template <typename... Parts>
absl::Status Misfit(const Node& node, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(DescribeNode(node), ": ", parts...));
}

// `what` is "input" or "output".
absl::Status CheckOperands(const Node& node, const char* what, const std::vector<ValueId>& actual,
                           const std::vector<FormalParameter>& formals) {
  const bool variadic = !formals.empty() && formals.back().variadic;
  if (actual.size() > formals.size() && !variadic) {
    return Misfit(node, "has ", actual.size(), " ", what, "s, expected at most ", formals.size());
  }
  for (size_t i = 0; i < formals.size(); ++i) {
    const bool present = i < actual.size() && actual[i].valid();
    if (present || formals[i].optional || formals[i].variadic) continue;
    // A required output may be gone because nothing uses it, but it keeps its place.
    if (what[0] == 'o' && i < actual.size()) continue;
    return Misfit(node, "lacks the required ", what, " ", i, " ('", formals[i].name, "')");
  }
  // An output of a list may be unused; an input is there or the list is shorter.
  for (size_t i = formals.size() - 1; variadic && what[0] == 'i' && i < actual.size(); ++i) {
    if (actual[i].valid()) continue;
    return Misfit(node, "leaves input ", i, " out of the list '", formals.back().name, "'");
  }
  return absl::OkStatus();
}

absl::Status CheckInputTypes(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    const FormalParameter& formal = *node.schema->FormalInput(static_cast<int>(i));
    const ValueType& type = graph.value(node.inputs[i]).type;
    if (type.kind != ValueKind::kTensor && !formal.any_kind) {
      return Misfit(node, "input ", i, " ('", formal.name, "') is ", type.ToString(),
                    ", expected a tensor");
    }
    const DType dtype = type.dtype;
    if (formal.dtypes.empty() || dtype == DType::kInvalid) continue;
    if (std::ranges::find(formal.dtypes, dtype) != formal.dtypes.end()) continue;
    return Misfit(node, "input ", i, " ('", formal.name, "') is ", std::string(DTypeName(dtype)),
                  ", expected one of ",
                  absl::StrJoin(formal.dtypes, ", ", [](std::string* out, DType allowed) {
                    out->append(DTypeName(allowed));
                  }));
  }
  return absl::OkStatus();
}

absl::Status CheckAttributes(const Node& node) {
  const std::vector<FormalAttribute>& formals = node.schema->attributes();
  for (const auto& [name, attribute] : node.attributes.items()) {
    const auto formal = std::ranges::find(formals, name, &FormalAttribute::name);
    if (formal == formals.end()) {
      return Misfit(node, "has the attribute '", name, "', which ", node.schema->FullName(),
                    " does not know");
    }
    if (TypeOf(attribute) != formal->type) {
      return Misfit(node, "attribute '", name, "' is of type ",
                    AttributeTypeName(TypeOf(attribute)), ", expected ",
                    AttributeTypeName(formal->type));
    }
  }
  for (const FormalAttribute& formal : formals) {
    if (!formal.required || node.attributes.Has(formal.name)) continue;
    return Misfit(node, "lacks the required attribute '", formal.name, "' (",
                  AttributeTypeName(formal.type), ")");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNodeAgainstSchema(const Graph& graph, const Node& node) {
  if (node.schema == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckOperands(node, "input", node.inputs, node.schema->inputs()));
  WEFT_RETURN_IF_ERROR(CheckOperands(node, "output", node.outputs, node.schema->outputs()));
  WEFT_RETURN_IF_ERROR(CheckInputTypes(graph, node));
  return CheckAttributes(node);
}

}  // namespace weft
