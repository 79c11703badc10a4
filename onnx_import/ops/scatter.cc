// Scatter became ScatterElements in 11.
#include <limits>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

constexpr int64_t kAnyVersion = std::numeric_limits<int64_t>::max();

absl::Status UpgradeScatter(NodeUpgrade& node) {
  node.spec.op = "ScatterElements";
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered =
    UpgradeRegistry::Global().Register("Scatter", kAnyVersion, UpgradeScatter);

}  // namespace
}  // namespace weft
