// Dropout: before 12 the ratio was an attribute, and a node in a model for inference passed its
// input on (which is what a missing training_mode input means now).
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeDropout(NodeUpgrade& node) {
  node.MoveFloatToInput("ratio", 1, DType::kFloat32);
  node.spec.attributes.Erase("is_test");  // before 7
  return absl::OkStatus();
}

[[maybe_unused]] const bool kDropoutRegistered =
    UpgradeRegistry::Global().Register("Dropout", 12, UpgradeDropout);

}  // namespace
}  // namespace weft
