// Scatter became ScatterElements in 11.
#include <limits>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

constexpr int64_t kAnyScatter = std::numeric_limits<int64_t>::max();

absl::Status UpgradeScatter(NodeUpgrade& node) {
  node.spec.op = "ScatterElements";
  return absl::OkStatus();
}

[[maybe_unused]] const bool kScatterRegistered =
    UpgradeRegistry::Global().Register("Scatter", kAnyScatter, UpgradeScatter);

}  // namespace
}  // namespace weft
