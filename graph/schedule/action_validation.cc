// ValidateActions: are the lists of a pipeline complete, and do they come to an end?
#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_kind.h"
#include "graph/schedule/schedule_simulator.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What every rank must have for each micro-batch.
struct Wanted {
  int micro_batches = 0;
  int chunks = 1;
  std::vector<ActionKind> kinds = {ActionKind::kForward};
};

Wanted WantedOf(const std::vector<ActionList>& ranks, int micro_batches) {
  Wanted wanted;
  wanted.micro_batches = micro_batches;
  bool has_backward = false;
  bool has_weight_gradient = false;
  for (const ActionList& actions : ranks) {
    wanted.chunks = std::max(wanted.chunks, ChunksOf(actions));
    has_weight_gradient |= SplitsBackward(actions);
    for (const Action& action : actions) has_backward |= action.kind == ActionKind::kBackward;
  }
  if (has_backward || has_weight_gradient) wanted.kinds.push_back(ActionKind::kBackward);
  if (has_weight_gradient) wanted.kinds.push_back(ActionKind::kWeightGradient);
  return wanted;
}

// Each of the actions that must be there comes once, Begin first and U last.
absl::Status CheckRank(const ActionList& actions, int rank, const Wanted& wanted) {
  const auto error = [rank](const std::string& message) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", rank, ": ", message));
  };
  std::set<std::tuple<ActionKind, int, int>> seen;
  for (const Action& action : actions) {
    const bool in_range = action.micro_batch >= 0 && action.micro_batch < wanted.micro_batches;
    if (IsMicro(action) && !in_range) {
      return error(absl::StrCat("action ", ActionToString(action),
                                " names a micro-batch outside 0..", wanted.micro_batches - 1));
    }
    if (action.chunk < 0) return error(absl::StrCat("an action has chunk ", action.chunk));
    if (!seen.insert({action.kind, action.micro_batch, action.chunk}).second) {
      return error(absl::StrCat(ActionToString(action), " comes twice"));
    }
  }
  for (int m = 0; m < wanted.micro_batches; ++m) {
    for (const ActionKind kind : wanted.kinds) {
      for (int chunk = 0; chunk < wanted.chunks; ++chunk) {
        if (seen.contains({kind, m, chunk})) continue;
        return error(absl::StrCat(ActionToString({kind, m, chunk}), " is missing"));
      }
    }
  }
  if (actions.empty() || actions.back().kind != ActionKind::kUpdate) return error("U is not last");
  if (actions.front().kind != ActionKind::kBegin) return error("Begin is not first");
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateActions(const std::vector<ActionList>& ranks, const ScheduleOptions& options) {
  const Wanted wanted = WantedOf(ranks, options.micro_batches);
  for (size_t r = 0; r < ranks.size(); ++r) {
    WEFT_RETURN_IF_ERROR(CheckRank(ranks[r], static_cast<int>(r), wanted));
  }
  return SimulateSchedule(ranks, options).status();
}

absl::Status ValidateActions(const std::vector<ActionList>& ranks, int micro_batches) {
  ScheduleOptions options;
  options.micro_batches = micro_batches;
  return ValidateActions(ranks, options);
}

}  // namespace weft
