// BatchNormalization: before 14 the mode followed from the outputs asked for; before 9 there was a
// `spatial` attribute.
#include <utility>
#include <vector>

#include "onnx_import/upgrade.h"

namespace weft {
namespace {

// Statistics per element of a sample: elements become channels.
absl::Status FlattenElements(NodeUpgrade& node) {
  Graph::NodeSpec& spec = node.spec;
  if (spec.inputs.size() != 5 || spec.outputs.size() != 1) {
    return absl::UnimplementedError(
        "attribute 'spatial' is 0 (statistics per element) in training, which ONNX dropped in "
        "operator set 9; export the model for operator set 9 or later");
  }
  const ValueId shape = node.AddNode("shape", "Shape", {spec.inputs[0]}, {});
  const ValueId line = node.Constant("line", Tensor::Of<int64_t>({1}, std::vector<int64_t>{-1}));
  std::vector<ValueId> inputs = {
      node.AddNode("flat", "Flatten", {spec.inputs[0]}, {{"axis", int64_t{1}}})};
  const char* const names[] = {"scale", "bias", "mean", "variance"};
  for (int i = 1; i < 5; ++i) {
    inputs.push_back(node.AddNode(names[i - 1], "Reshape", {spec.inputs[i], line}, {}));
  }
  const ValueId normal =
      node.AddNode("normal", "BatchNormalization", std::move(inputs), spec.attributes);
  spec.op = "Reshape";
  spec.inputs = {normal, shape};
  spec.attributes = Attributes({{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

absl::Status UpgradeBatchNormalization(NodeUpgrade& node) {
  Attributes& attributes = node.spec.attributes;
  const bool per_element = attributes.Int("spatial", 1) != 1;
  attributes.Erase("spatial");
  attributes.Erase("is_test");  // of operator set 6, where the outputs say the same
  if (node.HasOutput(3) || node.HasOutput(4)) {
    return absl::UnimplementedError(
        "its outputs saved_mean or saved_var are used, which ONNX dropped in operator set 14; "
        "export "
        "the model for operator set 14 or later");
  }
  if (node.HasOutput(1) || node.HasOutput(2)) attributes.Set("training_mode", int64_t{1});
  if (node.spec.outputs.size() > 3) node.spec.outputs.resize(3);
  return per_element ? FlattenElements(node) : absl::OkStatus();
}

[[maybe_unused]] const bool kBatchNormalizationRegistered =
    UpgradeRegistry::Global().Register("BatchNormalization", 14, UpgradeBatchNormalization);

}  // namespace
}  // namespace weft
