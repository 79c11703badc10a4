// Split: before 13 the sizes were an attribute; before 18 missing sizes meant equal parts, one per
// output, which has to be said now.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status SizesToInput(NodeUpgrade& node) {
  node.MoveIntsToInput("split", 1);
  return absl::OkStatus();
}

absl::Status CountOutputs(NodeUpgrade& node) {
  if (!node.HasInput(1)) {
    node.spec.attributes.Set("num_outputs", static_cast<int64_t>(node.spec.outputs.size()));
  }
  return absl::OkStatus();
}

[[maybe_unused]] const bool kSplitRegistered =
    UpgradeRegistry::Global().Register("Split", 13, SizesToInput) &&
    UpgradeRegistry::Global().Register("Split", 18, CountOutputs);

}  // namespace
}  // namespace weft
