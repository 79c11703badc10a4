// Pad: before 11 the widths and the value were attributes.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradePad(NodeUpgrade& node) {
  if (!node.spec.attributes.Has("pads")) {
    return absl::InvalidArgumentError("the required attribute 'pads' (INTS) is missing");
  }
  node.MoveIntsToInput("pads", 1);
  node.MoveFloatToInput("value", 2, node.InputDType(0));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kPadRegistered =
    UpgradeRegistry::Global().Register("Pad", 11, UpgradePad);

}  // namespace
}  // namespace weft
