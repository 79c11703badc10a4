// TopK: before 10 the number of elements was an attribute.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeTopK(NodeUpgrade& node) {
  if (!node.spec.attributes.Has("k")) {
    return absl::InvalidArgumentError("the required attribute 'k' (INT) is missing");
  }
  const std::vector<int64_t> k = {node.spec.attributes.Int("k", 0)};
  node.SetInput(1, node.Constant("k", Tensor::Of<int64_t>(Shape{1}, k)));
  node.spec.attributes.Erase("k");
  return absl::OkStatus();
}

[[maybe_unused]] const bool kTopKRegistered =
    UpgradeRegistry::Global().Register("TopK", 10, UpgradeTopK);

}  // namespace
}  // namespace weft
