// Operators whose axes were an attribute and are an input now.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status AxesToInput(NodeUpgrade& node) {
  node.MoveIntsToInput("axes", 1);
  return absl::OkStatus();
}

absl::Status RequiredAxesToInput(NodeUpgrade& node) {
  if (!node.spec.attributes.Has("axes")) {
    return absl::InvalidArgumentError("the required attribute 'axes' (INTS) is missing");
  }
  return AxesToInput(node);
}

[[maybe_unused]] const bool kAxesToInputRegistered =
    UpgradeRegistry::Global().Register("Squeeze", 13, AxesToInput) &&
    UpgradeRegistry::Global().Register("Unsqueeze", 13, RequiredAxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceSum", 13, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceL1", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceL2", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceLogSum", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceLogSumExp", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceMax", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceMean", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceMin", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceProd", 18, AxesToInput) &&
    UpgradeRegistry::Global().Register("ReduceSumSquare", 18, AxesToInput);

}  // namespace
}  // namespace weft
