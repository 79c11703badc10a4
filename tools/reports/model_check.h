// The diagnosis of `check`: the obstacles to running or training a model, with the repair.
#ifndef WEFT_TOOLS_REPORTS_MODEL_CHECK_H_
#define WEFT_TOOLS_REPORTS_MODEL_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"

namespace weft {

// How bad a finding is.
enum class Severity : uint8_t {
  kError,    // it will not run, or not train where that was asked for
  kWarning,  // it will, but perhaps not as meant
  kNote,     // worth knowing
};
std::string_view SeverityName(Severity severity);  // "error", "warning", "note"

// One obstacle to running or training a model, with its repair.
struct CheckFinding {
  Severity severity = Severity::kNote;
  std::vector<std::string> nodes;  // "conv1 (Conv)"; the first few speak for `count`
  int count = 1;
  std::string what;
  std::string repair;
};

// Errors first. With `trainable` also what concerns training: missing gradients, parameters that no
// gradient reaches, normalization folded into convolutions, layers exported for inference, paths of
// integers. Marks what trains in the model's graph, by `parameters`.
// `decisions`, if given: on each parameter.
absl::StatusOr<std::vector<CheckFinding>> CheckModel(
    ImportedModel& model, bool trainable, const TrainableOptions& parameters = {},
    std::vector<ParameterDecision>* decisions = nullptr);

// The errors among them that no flag cures: operators that nothing runs.
absl::StatusOr<std::vector<CheckFinding>> FindObstacles(const Graph& model);

// "Flaten: unknown operator, did you mean Flatten? at flat (Flaten); repair: write the operator
// ...".
std::string FindingText(const CheckFinding& finding);

// Whether an error's text is about a finding: it has its words, or names one of its nodes.
bool Explains(const CheckFinding& finding, const std::string& message);

// Joins what is found by looking (`findings`, of CheckModel) with what happened when training was
// tried. Errors are left where it was refused alone, and then there is one: `refusal` itself where
// nothing that was found explains it.
std::vector<CheckFinding> JoinRefusal(std::vector<CheckFinding> findings,
                                      const absl::Status& refusal);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_MODEL_CHECK_H_
