// Scan: before 9 every operand had a batch axis, and the first input said how long each sequence
// is.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status ToBatchedScan(NodeUpgrade& node) {
  node.spec.domain = std::string(kWeftDomain);
  node.spec.op = "BatchedScan";
  return absl::OkStatus();
}

[[maybe_unused]] const bool kScanRegistered =
    UpgradeRegistry::Global().Register("Scan", 9, ToBatchedScan);

}  // namespace
}  // namespace weft
