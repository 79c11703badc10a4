// DFT: before 20 the axis was an attribute, 1 by default.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeDft(NodeUpgrade& node) {
  const int64_t axis = node.spec.attributes.Int("axis", 1);
  node.spec.attributes.Erase("axis");
  node.SetInput(2, node.Constant("axis", Tensor::Scalar<int64_t>(axis)));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kDftRegistered =
    UpgradeRegistry::Global().Register("DFT", 20, UpgradeDft);

}  // namespace
}  // namespace weft
