#include "placement/simulation/simulator.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/simulation/step_loop.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckScript(const StepModel& model, const std::vector<ScriptedChange>& script) {
  for (const ScriptedChange& change : script) {
    const bool is_link = change.kind == ScriptedChange::Kind::kLinkSlower;
    const auto count = static_cast<int64_t>(is_link ? model.links.size() : model.ranks.size());
    if (change.index < 0 || change.index >= count) {
      return absl::InvalidArgumentError(absl::StrCat("the script changes ",
                                                     is_link ? "link " : "rank ", change.index,
                                                     ", but there are ", count));
    }
    const bool has_factor = change.kind != ScriptedChange::Kind::kRankStops;
    if (has_factor && (!(change.factor > 0) || !std::isfinite(change.factor))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the script's factor ", change.factor, " is not a number > 0"));
    }
    if (change.at_step < 0 && !(change.at_seconds >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the script's time ", change.at_seconds, " is not 0 seconds or more"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Simulation> SimulateStep(const StepModel& model, const SimulationOptions& options) {
  if (options.steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot simulate ", options.steps, " steps; expected 1 or more"));
  }
  WEFT_RETURN_IF_ERROR(model.Check());
  WEFT_RETURN_IF_ERROR(CheckScript(model, options.script));
  return StepLoop(model, options).Run();
}

}  // namespace weft
