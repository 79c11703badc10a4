// Cast: before 6 the target type was a name; before 24 floats beyond the range of a 4-bit integer
// became its nearest value, now their low bits are kept. The standard's text does not say how a
// float becomes a bfloat16: its data cut it off before 24 and round to nearest even since.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status NumberTheType(NodeUpgrade& node) {
  const Attribute* to = node.spec.attributes.Find("to");
  if (to == nullptr || !std::holds_alternative<std::string>(*to)) return absl::OkStatus();
  const std::string given = std::get<std::string>(*to);
  std::string name = absl::AsciiStrToLower(given);
  if (name == "float") name = "float32";
  if (name == "double") name = "float64";
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'to' is '", given, "', expected the name of an ONNX data type"));
  }
  node.spec.attributes.Set("to", static_cast<int64_t>(*dtype));
  return absl::OkStatus();
}

absl::Status Saturate(NodeUpgrade& node) {
  const DType from = node.InputDType(0);
  const auto to = static_cast<DType>(node.spec.attributes.Int("to", 0));
  const bool is_number = from == DType::kFloat32 || from == DType::kFloat64 ||
                         from == DType::kFloat16 || from == DType::kBfloat16;
  if (!is_number || (to != DType::kInt4 && to != DType::kUint4)) return absl::OkStatus();
  const auto bound = [&](const char* suffix, float value) -> absl::StatusOr<ValueId> {
    const absl::StatusOr<Tensor> scalar = CastTensor(Tensor::Scalar<float>(value), from);
    if (!scalar.ok()) return scalar.status();
    return node.Constant(suffix, *scalar);
  };
  const absl::StatusOr<ValueId> low = bound("low", to == DType::kInt4 ? -8.0f : 0.0f);
  const absl::StatusOr<ValueId> high = bound("high", to == DType::kInt4 ? 7.0f : 15.0f);
  if (!low.ok()) return low.status();
  if (!high.ok()) return high.status();
  node.SetInput(0, node.AddNode("clipped", "Clip", {node.spec.inputs[0], *low, *high}, {}));
  return absl::OkStatus();
}

// Only towards bfloat16 does a kernel look at it, among the types that there were before 24.
absl::Status CutOff(NodeUpgrade& node) {
  node.spec.attributes.Set("round_mode", std::string("down"));
  return absl::OkStatus();
}

absl::Status ConvertAsBefore24(NodeUpgrade& node) {
  const bool to_bfloat16 =
      static_cast<DType>(node.spec.attributes.Int("to", 0)) == DType::kBfloat16;
  return to_bfloat16 ? CutOff(node) : Saturate(node);
}

[[maybe_unused]] const bool kCastRegistered =
    UpgradeRegistry::Global().Register("Cast", 6, NumberTheType) &&
    UpgradeRegistry::Global().Register("Cast", 24, ConvertAsBefore24) &&
    UpgradeRegistry::Global().Register("CastLike", 24, CutOff);

}  // namespace
}  // namespace weft
