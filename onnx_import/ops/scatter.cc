// Operators that live on under another name: Scatter became ScatterElements in 11; DynamicSlice,
// which was experimental before 10, is what Slice is since.
#include <limits>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

constexpr int64_t kAnyVersion = std::numeric_limits<int64_t>::max();

UpgradeFn RenameTo(const char* name) {
  return [name](NodeUpgrade& node) {
    node.spec.op = name;
    return absl::OkStatus();
  };
}

[[maybe_unused]] const bool kRegistered =
    UpgradeRegistry::Global().Register("Scatter", kAnyVersion, RenameTo("ScatterElements")) &&
    UpgradeRegistry::Global().Register("DynamicSlice", kAnyVersion, RenameTo("Slice"));

}  // namespace
}  // namespace weft
