// SettleTies: which tensors of a model file are one, before it is imported to train.
#ifndef WEFT_ONNX_IMPORT_EDIT_TIES_H_
#define WEFT_ONNX_IMPORT_EDIT_TIES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx_import/edit/tie_report.h"
#include "onnx_import/model_file.h"

namespace weft {

// What the user says about ties. The results depend on these and the file alone.
struct TieOptions {
  // Patterns of names, or "all", or "none" (untie.h); empty: the rules.
  std::vector<std::string> untie = {};
  // "A=B", or "auto" (copied_tensors.h).
  std::vector<std::string> tie = {};
  // Leaves payloads in the edited file, so that it can be written as it is (FileEdit).
  bool keep_payloads = false;
};

struct TiedModel {
  ModelFile file;  // the one given, where nothing changes
  TieReport report;
};

// Unties what exporters have merged, ties the copies that they have made of one parameter and what
// is asked for, and looks for other copies that could be tied. Restores biases of zeros that
// exporters have left out, unless `untie` is none. A file that brings its own training
// (training_info) binds its tensors by name and stays as it is. Move the file in, so that only one
// of both is decoded at a time. InvalidArgument for names and patterns that fit nothing;
// ResourceExhausted for a file that would become far larger than it is (CopyBudget). Nothing else
// in the file is an error that was none before.
absl::StatusOr<TiedModel> SettleTies(ModelFile file, const TieOptions& options = {});

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_TIES_H_
