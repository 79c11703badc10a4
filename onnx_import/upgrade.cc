#include "onnx_import/upgrade.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

DType NodeUpgrade::InputDType(size_t i) const {
  return HasInput(i) ? graph_.value(spec.inputs[i]).type.dtype : DType::kInvalid;
}

std::optional<int> NodeUpgrade::InputRank(size_t i) const {
  if (!HasInput(i)) return std::nullopt;
  const SymbolicShape& shape = graph_.value(spec.inputs[i]).type.shape;
  if (!shape.has_rank()) return std::nullopt;
  return shape.rank();
}

ValueId NodeUpgrade::Constant(std::string_view suffix, Tensor tensor) {
  const ValueId value =
      graph_.AddConstant(absl::StrCat(spec.name, "/", std::string(suffix)), std::move(tensor));
  Origin& origin = graph_.value(value).origin;
  origin.forward_node = spec.name;
  origin.logical_value = graph_.value(value).name;
  return value;
}

ValueId NodeUpgrade::AddNode(std::string_view suffix, const std::string& op,
                             std::vector<ValueId> inputs, Attributes attributes) {
  Graph::NodeSpec helper;
  helper.name = absl::StrCat(spec.name, "/", std::string(suffix));
  helper.op = op;
  helper.inputs = std::move(inputs);
  helper.attributes = std::move(attributes);
  helper.outputs = {helper.name};
  helper.origin.forward_node = spec.name;
  const NodeId id = graph_.AddNode(std::move(helper));
  const ValueId output = graph_.node(id).outputs[0];
  Origin& origin = graph_.value(output).origin;
  origin.forward_node = spec.name;
  origin.logical_value = graph_.value(output).name;
  return output;
}

void NodeUpgrade::SetInput(size_t i, ValueId value) {
  if (spec.inputs.size() <= i) spec.inputs.resize(i + 1, kNoValue);
  spec.inputs[i] = value;
}

void NodeUpgrade::MoveIntsToInput(const std::string& attribute, size_t i) {
  if (!spec.attributes.Has(attribute)) return;
  const std::vector<int64_t> ints = spec.attributes.Ints(attribute);
  const Shape shape{static_cast<int64_t>(ints.size())};
  SetInput(i, Constant(attribute, Tensor::Of<int64_t>(shape, ints)));
  spec.attributes.Erase(attribute);
}

void NodeUpgrade::MoveFloatToInput(const std::string& attribute, size_t i, DType dtype) {
  if (!spec.attributes.Has(attribute)) return;
  Tensor scalar = Tensor::Scalar<float>(spec.attributes.Float(attribute, 0));
  if (dtype != DType::kInvalid && dtype != DType::kFloat32) {
    absl::StatusOr<Tensor> cast = CastTensor(scalar, dtype);
    if (cast.ok()) scalar = *std::move(cast);  // a dtype without floats: inference refuses the node
  }
  SetInput(i, Constant(attribute, std::move(scalar)));
  spec.attributes.Erase(attribute);
}

UpgradeRegistry& UpgradeRegistry::Global() {
  static UpgradeRegistry* const registry = new UpgradeRegistry;
  return *registry;
}

bool UpgradeRegistry::Register(const std::string& op, int64_t below, UpgradeFn rewrite) {
  steps_[op][below] = std::move(rewrite);
  return true;
}

absl::Status UpgradeRegistry::Run(NodeUpgrade& node) const {
  const auto found = steps_.find(node.spec.op);
  if (found == steps_.end()) return absl::OkStatus();
  for (const auto& [below, rewrite] : found->second) {
    if (node.version >= below) continue;
    WEFT_RETURN_IF_ERROR(rewrite(node));
  }
  return absl::OkStatus();
}

}  // namespace weft
