// Resize: before 11 there were no coordinate modes; what "nearest" took was the element below, or
// above where the axis shrinks. Before 13 the shape of the inputs was the same.
// Upsample is Resize of operator set 10 under another name; before 9 its scales were an attribute.
#include <string>
#include <vector>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

// Our own value of the attribute: up where the axis shrinks, down otherwise
// (ops/defs/image/resize_axis.h).
constexpr char kSimpleNearestMode[] = "weft_simple";

absl::Status UpgradeResize(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  attributes.Set("coordinate_transformation_mode", std::string("asymmetric"));
  const std::string mode = attributes.String("mode", "nearest");
  if (mode == "nearest") attributes.Set("nearest_mode", std::string(kSimpleNearestMode));
  if (mode == "bilinear") attributes.Set("mode", std::string("linear"));
  if (node.spec.inputs.size() != 2) {
    return absl::InvalidArgumentError("the inputs must be the tensor and its scales");
  }
  const ValueId scales = node.spec.inputs[1];
  node.SetInput(1, kNoValue);
  node.SetInput(2, scales);
  return absl::OkStatus();
}

// Of operator set 6: images of two axes only.
absl::Status JoinScales(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  for (const char* name : {"height_scale", "width_scale"}) {
    if (attributes.Has(name)) continue;
    return absl::InvalidArgumentError(
        "the required attributes 'height_scale' and 'width_scale' (FLOAT) are missing");
  }
  attributes.Set("scales", std::vector<float>{1.0f, 1.0f, attributes.Float("height_scale", 1),
                                              attributes.Float("width_scale", 1)});
  attributes.Erase("height_scale");
  attributes.Erase("width_scale");
  return absl::OkStatus();
}

absl::Status ScalesToInput(NodeUpgrade& node) {
  if (!node.spec.attributes.Has("scales")) {
    return absl::InvalidArgumentError("the required attribute 'scales' (FLOATS) is missing");
  }
  const std::vector<float> scales = node.spec.attributes.Floats("scales");
  const Shape shape{static_cast<int64_t>(scales.size())};
  node.SetInput(1, node.Constant("scales", Tensor::Of<float>(shape, scales)));
  node.spec.attributes.Erase("scales");
  return absl::OkStatus();
}

absl::Status UpsampleToResize(NodeUpgrade& node) {
  node.spec.op = "Resize";
  return UpgradeResize(node);
}

constexpr int64_t kEveryVersion = 1 << 20;  // Upsample has no newest form

[[maybe_unused]] const bool kResizeRegistered =
    UpgradeRegistry::Global().Register("Resize", 11, UpgradeResize) &&
    UpgradeRegistry::Global().Register("Upsample", 7, JoinScales) &&
    UpgradeRegistry::Global().Register("Upsample", 9, ScalesToInput) &&
    UpgradeRegistry::Global().Register("Upsample", kEveryVersion, UpsampleToResize);

}  // namespace
}  // namespace weft
