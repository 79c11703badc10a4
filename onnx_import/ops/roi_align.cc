// RoiAlign: before 16 regions were not moved by half a pixel.
#include <string>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status UpgradeRoiAlign(NodeUpgrade& node) {
  node.spec.attributes.Set("coordinate_transformation_mode", std::string("output_half_pixel"));
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRoiAlignRegistered =
    UpgradeRegistry::Global().Register("RoiAlign", 16, UpgradeRoiAlign);

}  // namespace
}  // namespace weft
