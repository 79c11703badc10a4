// GridSample: before 20 its modes had the names of two image axes.
#include <string>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeGridSample(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  const std::string mode = attributes.String("mode", "bilinear");
  if (mode == "bilinear") attributes.Set("mode", std::string("linear"));
  if (mode == "bicubic") attributes.Set("mode", std::string("cubic"));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kGridSampleRegistered =
    UpgradeRegistry::Global().Register("GridSample", 20, UpgradeGridSample);

}  // namespace
}  // namespace weft
