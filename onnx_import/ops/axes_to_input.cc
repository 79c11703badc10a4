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

UpgradeRegistry& Registry() { return UpgradeRegistry::Global(); }

[[maybe_unused]] const bool kRegistered =
    Registry().Register("Squeeze", 13, AxesToInput) &&
    Registry().Register("Unsqueeze", 13, RequiredAxesToInput) &&
    Registry().Register("ReduceSum", 13, AxesToInput) &&
    Registry().Register("ReduceL1", 18, AxesToInput) &&
    Registry().Register("ReduceL2", 18, AxesToInput) &&
    Registry().Register("ReduceLogSum", 18, AxesToInput) &&
    Registry().Register("ReduceLogSumExp", 18, AxesToInput) &&
    Registry().Register("ReduceMax", 18, AxesToInput) &&
    Registry().Register("ReduceMean", 18, AxesToInput) &&
    Registry().Register("ReduceMin", 18, AxesToInput) &&
    Registry().Register("ReduceProd", 18, AxesToInput) &&
    Registry().Register("ReduceSumSquare", 18, AxesToInput);

}  // namespace
}  // namespace weft
