// RNN, GRU and LSTM: before 7 an attribute said whether all states are wanted; now the outputs do.
#include "onnx_import/upgrade.h"

namespace weft {
namespace {

absl::Status DropOutputSequence(NodeUpgrade& node) {
  node.spec.attributes.Erase("output_sequence");
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRecurrentRegistered =
    UpgradeRegistry::Global().Register("RNN", 7, DropOutputSequence) &&
    UpgradeRegistry::Global().Register("GRU", 7, DropOutputSequence) &&
    UpgradeRegistry::Global().Register("LSTM", 7, DropOutputSequence);

}  // namespace
}  // namespace weft
