// Clip: before 11 the bounds were attributes.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeClip(NodeUpgrade& node) {
  const DType dtype = node.InputDType(0);
  node.MoveFloatToInput("min", 1, dtype);
  node.MoveFloatToInput("max", 2, dtype);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kClipRegistered =
    UpgradeRegistry::Global().Register("Clip", 11, UpgradeClip);

}  // namespace
}  // namespace weft
