// Operators of two operands: before 7 broadcasting had to be asked for (attribute `broadcast`), and
// `axis` said at which axis of A those of B begin.
#include "absl/strings/str_cat.h"
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

// Today's broadcasting aligns B at the right: gives it the axes of size one that this leaves out.
absl::Status AlignAtRight(NodeUpgrade& node, int64_t axis) {
  const std::optional<int> a_rank = node.InputRank(0);
  const std::optional<int> b_rank = node.InputRank(1);
  if (!a_rank.has_value() || !b_rank.has_value()) {
    return absl::UnimplementedError(
        "attribute 'axis' aligns operands whose ranks are not known at import; run shape "
        "inference on the model, or export it for operator set 7 or later");
  }
  const int64_t first = axis < 0 ? axis + *a_rank : axis;
  if (first < 0 || first > *a_rank - *b_rank) {
    return absl::InvalidArgumentError(absl::StrCat("attribute 'axis' is ", axis,
                                                   ", which does not fit operands of rank ",
                                                   *a_rank, " and ", *b_rank));
  }
  const int64_t behind = *a_rank - first - *b_rank;
  if (behind == 0) return absl::OkStatus();
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < behind; ++d) axes.push_back(*b_rank + d);
  const ValueId list = node.Constant("axes", Tensor::Of<int64_t>(Shape{behind}, axes));
  node.SetInput(1, node.AddNode("aligned", "Unsqueeze", {node.spec.inputs[1], list}, {}));
  return absl::OkStatus();
}

absl::Status UpgradeBroadcast(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  const bool broadcasts = attributes.Int("broadcast", 0) != 0;
  const Attribute* axis = attributes.Find("axis");
  absl::Status status;
  if (broadcasts && axis != nullptr && node.HasInput(0) && node.HasInput(1)) {
    status = AlignAtRight(node, attributes.Int("axis", 0));
  }
  attributes.Erase("axis");
  attributes.Erase("broadcast");
  return status;
}

// Gemm's C broadcasts without being asked now.
absl::Status UpgradeGemm(NodeUpgrade& node) {
  node.spec.attributes.Erase("broadcast");
  return absl::OkStatus();
}

// One slope per channel (axis 1) was a vector.
absl::Status UpgradePRelu(NodeUpgrade& node) {
  const std::optional<int> rank = node.InputRank(0);
  const std::optional<int> slope_rank = node.InputRank(1);
  if (!slope_rank.has_value() || *slope_rank != 1) return absl::OkStatus();
  if (!rank.has_value()) {
    return absl::UnimplementedError(
        "the rank of X is not known at import, but says where the slopes belong; export the model "
        "for operator set 7 or later");
  }
  if (*rank <= 2) return absl::OkStatus();
  return AlignAtRight(node, 1);
}

[[maybe_unused]] const bool kLegacyBroadcastRegistered =
    UpgradeRegistry::Global().Register("Add", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Sub", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Mul", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Div", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Pow", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("And", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Or", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Xor", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Equal", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Less", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Greater", 7, UpgradeBroadcast) &&
    UpgradeRegistry::Global().Register("Gemm", 7, UpgradeGemm) &&
    UpgradeRegistry::Global().Register("PRelu", 7, UpgradePRelu);

}  // namespace
}  // namespace weft
