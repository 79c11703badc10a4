// DynamicSlice, an experiment of early files: Slice before its bounds became inputs.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

constexpr int64_t kAnyDynamicSlice = 1000;

absl::Status ToSlice(NodeUpgrade& node) {
  node.spec.op = "Slice";
  return absl::OkStatus();
}

[[maybe_unused]] const bool kDynamicSliceRegistered =
    UpgradeRegistry::Global().Register("DynamicSlice", kAnyDynamicSlice, ToSlice);

}  // namespace
}  // namespace weft
