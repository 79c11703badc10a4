#include "onnx_import/edit/parameter_role.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/module_path.h"

namespace weft {
namespace {

struct RoleRow {
  std::string_view op;
  int input;
  ParameterRole role;
  std::string_view port;
};

// Of ONNX's operators, and of those that ONNX Runtime's optimizer fuses.
constexpr RoleRow kRoles[] = {
    {"BatchNormalization", 1, ParameterRole::kScale, "scale"},
    {"BatchNormalization", 2, ParameterRole::kBias, "B"},
    {"BatchNormalization", 3, ParameterRole::kMean, "mean"},
    {"BatchNormalization", 4, ParameterRole::kVariance, "var"},
    {"LayerNormalization", 1, ParameterRole::kScale, "scale"},
    {"LayerNormalization", 2, ParameterRole::kBias, "B"},
    {"GroupNormalization", 1, ParameterRole::kScale, "scale"},
    {"GroupNormalization", 2, ParameterRole::kBias, "bias"},
    {"InstanceNormalization", 1, ParameterRole::kScale, "scale"},
    {"InstanceNormalization", 2, ParameterRole::kBias, "B"},
    {"RMSNormalization", 1, ParameterRole::kScale, "scale"},
    {"SimplifiedLayerNormalization", 1, ParameterRole::kScale, "scale"},
    {"SkipLayerNormalization", 2, ParameterRole::kScale, "gamma"},
    {"SkipLayerNormalization", 3, ParameterRole::kBias, "beta"},
    {"SkipLayerNormalization", 4, ParameterRole::kBias, "bias"},
    {"Conv", 1, ParameterRole::kWeight, "W"},
    {"Conv", 2, ParameterRole::kBias, "B"},
    {"ConvTranspose", 1, ParameterRole::kWeight, "W"},
    {"ConvTranspose", 2, ParameterRole::kBias, "B"},
    {"DeformConv", 1, ParameterRole::kWeight, "W"},
    {"DeformConv", 3, ParameterRole::kBias, "B"},
    {"Gemm", 0, ParameterRole::kWeight, "A"},
    {"Gemm", 1, ParameterRole::kWeight, "B"},
    {"Gemm", 2, ParameterRole::kBias, "C"},
    {"MatMul", 0, ParameterRole::kWeight, "A"},
    {"MatMul", 1, ParameterRole::kWeight, "B"},
    {"FusedMatMul", 0, ParameterRole::kWeight, "A"},
    {"FusedMatMul", 1, ParameterRole::kWeight, "B"},
    {"Gather", 0, ParameterRole::kWeight, "data"},
    {"LSTM", 1, ParameterRole::kWeight, "W"},
    {"LSTM", 2, ParameterRole::kWeight, "R"},
    {"LSTM", 3, ParameterRole::kBias, "B"},
    {"LSTM", 7, ParameterRole::kWeight, "P"},
    {"GRU", 1, ParameterRole::kWeight, "W"},
    {"GRU", 2, ParameterRole::kWeight, "R"},
    {"GRU", 3, ParameterRole::kBias, "B"},
    {"RNN", 1, ParameterRole::kWeight, "W"},
    {"RNN", 2, ParameterRole::kWeight, "R"},
    {"RNN", 3, ParameterRole::kBias, "B"},
    {"PRelu", 1, ParameterRole::kScale, "slope"},
    {"BiasGelu", 1, ParameterRole::kBias, "bias"},
};

const RoleRow* FindRow(const onnx::NodeProto& node, int input) {
  const std::string domain = NormalizedDomain(node.domain());
  if (!domain.empty() && domain != "com.microsoft") return nullptr;
  const auto row = std::find_if(std::begin(kRoles), std::end(kRoles), [&](const RoleRow& one) {
    return one.op == node.op_type() && one.input == input;
  });
  return row != std::end(kRoles) ? &*row : nullptr;
}

bool IsVector(const Shape& shape) {
  int long_axes = 0;
  for (int i = 0; i < shape.rank(); ++i) long_axes += shape.dim(i) > 1;
  return long_axes == 1;
}

// A learnable input of an operator of somebody else.
ParameterRole RoleBySchema(const onnx::NodeProto& node, int input) {
  const std::string domain = NormalizedDomain(node.domain());
  if (domain.empty()) return ParameterRole::kOther;
  const OpSchema* const schema = OpRegistry::Global().Find(domain, node.op_type());
  const FormalParameter* const formal = schema == nullptr ? nullptr : schema->FormalInput(input);
  if (formal == nullptr || !formal->learnable) return ParameterRole::kOther;
  return absl::StrContains(formal->name, "ias") ? ParameterRole::kBias : ParameterRole::kScale;
}

}  // namespace

ParameterRole RoleAt(const onnx::NodeProto& node, int input, const Shape& shape) {
  const RoleRow* const row = FindRow(node, input);
  if (row != nullptr) {
    const bool is_matrix = row->role != ParameterRole::kWeight || shape.rank() >= 2;
    return is_matrix ? row->role : ParameterRole::kOther;
  }
  if (!NormalizedDomain(node.domain()).empty()) return RoleBySchema(node, input);
  if (!IsVector(shape)) return ParameterRole::kOther;
  if (node.op_type() == "Add") return ParameterRole::kBias;
  return node.op_type() == "Mul" ? ParameterRole::kScale : ParameterRole::kOther;
}

std::string_view LeafName(ParameterRole role) {
  switch (role) {
    case ParameterRole::kBias:
      return "bias";
    case ParameterRole::kMean:
      return "running_mean";
    case ParameterRole::kVariance:
      return "running_var";
    case ParameterRole::kOther:
    case ParameterRole::kScale:
    case ParameterRole::kWeight:
      return "weight";
  }
  return "weight";
}

std::string PortName(const onnx::NodeProto& node, int input) {
  const RoleRow* const row = FindRow(node, input);
  return row != nullptr ? std::string(row->port) : absl::StrCat("input", input);
}

bool OnlyMovesElements(const onnx::NodeProto& node) {
  if (!NormalizedDomain(node.domain()).empty()) return false;
  const std::string& op = node.op_type();
  return op == "Unsqueeze" || op == "Squeeze" || op == "Reshape" || op == "Transpose" ||
         op == "Flatten" || op == "Cast";
}

bool HasNameScopes(const onnx::NodeProto& node) {
  return std::any_of(node.metadata_props().begin(), node.metadata_props().end(),
                     [](const auto& entry) { return entry.key() == kNameScopesKey; });
}

std::string ModuleOf(const onnx::NodeProto& node) {
  for (const onnx::StringStringEntryProto& entry : node.metadata_props()) {
    if (entry.key() != kNameScopesKey) continue;
    std::string module = ModuleInScopes(entry.value());
    if (!module.empty()) return module;
    break;
  }
  return ModuleInNodeName(node.name());
}

}  // namespace weft
