// BatchNormalization: before 14 the mode followed from the outputs asked for; before 9 there was a
// `spatial` attribute.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeBatchNormalization(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  if (attributes.Int("spatial", 1) != 1) {
    return absl::UnimplementedError(
        "attribute 'spatial' is 0 (statistics per activation), which ONNX dropped in operator set "
        "9; "
        "export the model for operator set 9 or later");
  }
  attributes.Erase("spatial");
  if (node.HasOutput(3) || node.HasOutput(4)) {
    return absl::UnimplementedError(
        "its outputs saved_mean or saved_var are used, which ONNX dropped in operator set 14; "
        "export "
        "the model for operator set 14 or later");
  }
  if (node.HasOutput(1) || node.HasOutput(2)) attributes.Set("training_mode", int64_t{1});
  if (node.spec.outputs.size() > 3) node.spec.outputs.resize(3);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered =
    UpgradeRegistry::Global().Register("BatchNormalization", 14, UpgradeBatchNormalization);

}  // namespace
}  // namespace weft
