// RepairFlags: what of a model file is repaired before it trains.
#ifndef WEFT_TOOLS_FLAGS_REPAIR_FLAGS_H_
#define WEFT_TOOLS_FLAGS_REPAIR_FLAGS_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "onnx_import/model_file.h"

namespace weft {

// From file to file.
using FileRepair = std::function<absl::StatusOr<ModelFile>(ModelFile)>;

// Binds flags to itself, so it must outlive the parser's use of it. All errors carry their exit
// code.
class RepairFlags {
 public:
  // `group` of the help text.
  void Add(CLI::App& app, const std::string& group);

  // Whether BatchNormalization is put back behind convolutions (onnx_import/unfolding).
  bool unfolds() const { return !repairs_.empty(); }
  // Of the convolutions; empty: those that exporters have left traces at.
  std::vector<std::string> patterns() const;
  // The nodes that are put back, by name: they normalize with the statistics of the batch.
  static std::string TrainModePattern();
  // The same graph without data: statistics of 0 and 1. Null where nothing is repaired.
  FileRepair WithoutData() const;

 private:
  std::vector<std::string> repairs_;  // unfold-bn or unfold-bn=PATTERN
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_REPAIR_FLAGS_H_
