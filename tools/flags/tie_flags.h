// TieFlags: which tensors of a model file are one, and how a file in training mode is written back.
#ifndef WEFT_TOOLS_FLAGS_TIE_FLAGS_H_
#define WEFT_TOOLS_FLAGS_TIE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/importer.h"
#include "tools/flags/repair_flags.h"
#include "training/adapters/adapter_options.h"
#include "training/checkpoint/flag_record.h"

namespace weft {

// How a trained model is written.
enum class ExportMode : uint8_t {
  kAsImported,
  kInference,  // WriteForInference
};

// Binds flags to itself, so it must outlive the parser's use of it. All errors carry their exit
// code.
class TieFlags {
 public:
  // `group` of the help text.
  void Add(CLI::App& app, const std::string& group);
  // As they are beside the values of --lora, --qlora and --adapters-in: where adapters alone train,
  // merged tensors stay one unless --untie names them, and the exported file keeps the tensors that
  // it had.
  TieFlags BesideAdapters(const AdapterTexts& adapters) const;
  // As a checkpoint has recorded them (LoopFlags::GivenFlags).
  static TieFlags FromGiven(const FlagRecord& given);

  // Reads the file, settles what is tied, and imports it to train. `report`, if it is not null,
  // gets what was done. With `keep_payloads` the file that the model is exported from holds all its
  // payloads. `repair` (null: none) comes before all else.
  absl::StatusOr<ImportedModel> Import(const std::string& path, TieReport* report = nullptr,
                                       bool keep_payloads = false,
                                       const FileRepair& repair = nullptr) const;
  bool given() const { return !options_.untie.empty() || !options_.tie.empty(); }

 private:
  TieOptions options_;
};

// The texts of --lora, --qlora and --adapters-in, as a checkpoint has recorded them.
AdapterTexts AdapterTextsOfGiven(const FlagRecord& given);

// --export-mode, into a text that ExportModeOf understands.
void AddExportMode(CLI::App& app, std::string& mode, const std::string& group);
ExportMode ExportModeOf(const std::string& mode);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_TIE_FLAGS_H_
