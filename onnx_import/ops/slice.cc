// Slice: before 10 starts, ends and axes were attributes.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeSlice(NodeUpgrade& node) {
  for (const char* name : {"starts", "ends"}) {
    if (node.spec.attributes.Has(name)) continue;
    return absl::InvalidArgumentError(
        "the required attributes 'starts' and 'ends' (INTS) are missing");
  }
  node.MoveIntsToInput("starts", 1);
  node.MoveIntsToInput("ends", 2);
  node.MoveIntsToInput("axes", 3);
  return absl::OkStatus();
}

[[maybe_unused]] const bool kSliceRegistered =
    UpgradeRegistry::Global().Register("Slice", 10, UpgradeSlice);

}  // namespace
}  // namespace weft
