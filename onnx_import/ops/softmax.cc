// Softmax, LogSoftmax and Hardmax: before 13 the input was seen as a matrix, all axes from `axis`
// (1 by default) on being its rows; now `axis` (-1 by default) is one axis.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeSoftmax(NodeUpgrade& node) {
  if (!node.HasInput(0) || node.spec.outputs.empty()) return absl::OkStatus();  // refused later
  Graph::NodeSpec& spec = node.spec;
  const int64_t axis = spec.attributes.Int("axis", 1);
  const std::optional<int> rank = node.InputRank(0);
  if (axis == -1 || (rank && axis == *rank - 1)) {
    spec.attributes.Set("axis", int64_t{-1});
    return absl::OkStatus();
  }
  const ValueId input = spec.inputs[0];
  const ValueId matrix = node.AddNode("matrix", "Flatten", {input}, {{"axis", axis}});
  const ValueId rows = node.AddNode("rows", spec.op, {matrix}, {{"axis", int64_t{-1}}});
  const ValueId shape = node.AddNode("shape", "Shape", {input}, {});
  spec.op = "Reshape";
  spec.inputs = {rows, shape};
  spec.attributes = Attributes({{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

[[maybe_unused]] const bool kSoftmaxRegistered =
    UpgradeRegistry::Global().Register("Softmax", 13, UpgradeSoftmax) &&
    UpgradeRegistry::Global().Register("LogSoftmax", 13, UpgradeSoftmax) &&
    UpgradeRegistry::Global().Register("Hardmax", 13, UpgradeSoftmax);

}  // namespace
}  // namespace weft
