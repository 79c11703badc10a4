#include "graph/schedule/action_list.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = Action::Kind;

std::string ActionToString(const Action& action) {
  switch (action.kind) {
    case Kind::kBegin:
      return "Begin";
    case Kind::kForward:
      return absl::StrCat("F", action.micro_batch);
    case Kind::kBackward:
      return absl::StrCat("B", action.micro_batch);
    case Kind::kUpdate:
      return "U";
  }
  return "?";
}

absl::StatusOr<Action> ParseAction(const std::string& word) {
  if (word == "Begin") return Action{Kind::kBegin, 0};
  if (word == "U") return Action{Kind::kUpdate, 0};
  int micro_batch = 0;
  const bool is_digits = word.size() > 1 && std::all_of(word.begin() + 1, word.end(), [](char c) {
                           return c >= '0' && c <= '9';
                         });
  if (is_digits && (word[0] == 'F' || word[0] == 'B') &&
      absl::SimpleAtoi(word.substr(1), &micro_batch)) {
    return Action{word[0] == 'F' ? Kind::kForward : Kind::kBackward, micro_batch};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown action '", word, "'; expected Begin, U, or F or B with a micro-batch (F0, B2)"));
}

ActionList Framed(ActionList middle) {
  middle.insert(middle.begin(), Action{Kind::kBegin, 0});
  middle.push_back({Kind::kUpdate, 0});
  return middle;
}

// The action lists of all stages, played with one time unit per action: an action starts when those
// it needs ended earlier. Begin and U wait for nobody here; what they exchange is not per
// micro-batch.
class ActionPlayer {
 public:
  ActionPlayer(const std::vector<ActionList>& stages, int micro_batches)
      : stages_(stages),
        micro_batches_(micro_batches),
        end_of_forward_(stages.size(), std::vector<int>(micro_batches, -1)),
        end_of_backward_(end_of_forward_),
        next_(stages.size(), 0),
        rows_(stages.size()) {}

  // False when no action can start any more and some are left.
  bool Play() {
    for (int time = 0;; ++time) {
      bool left = false;
      bool moved = false;
      for (size_t s = 0; s < stages_.size(); ++s) {
        const bool has_next = next_[s] < stages_[s].size();
        const bool ready = has_next && IsReady(s, stages_[s][next_[s]], time);
        left |= has_next;
        moved |= ready;
        rows_[s].push_back(ready ? ActionToString(stages_[s][next_[s]]) : "");
        if (ready) Finish(s, stages_[s][next_[s]++], time + 1);
      }
      if (!left || !moved) return !left;
    }
  }

  size_t next(size_t stage) const { return next_[stage]; }
  // What each stage does in each time unit; "" = idle.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  static bool Ended(int end, int now) { return end >= 0 && end <= now; }

  bool InRange(const Action& action) const {
    return action.micro_batch >= 0 && action.micro_batch < micro_batches_;
  }

  bool IsReady(size_t s, const Action& action, int now) const {
    if (action.kind == Kind::kBegin || action.kind == Kind::kUpdate || !InRange(action)) {
      return true;
    }
    const int m = action.micro_batch;
    if (action.kind == Kind::kForward) return s == 0 || Ended(end_of_forward_[s - 1][m], now);
    const bool is_last = s + 1 == stages_.size();
    return Ended(end_of_forward_[s][m], now) && (is_last || Ended(end_of_backward_[s + 1][m], now));
  }

  void Finish(size_t s, const Action& action, int end) {
    if (!InRange(action)) return;
    if (action.kind == Kind::kForward) end_of_forward_[s][action.micro_batch] = end;
    if (action.kind == Kind::kBackward) end_of_backward_[s][action.micro_batch] = end;
  }

  const std::vector<ActionList>& stages_;
  const int micro_batches_;
  std::vector<std::vector<int>> end_of_forward_;  // by stage, micro-batch; -1 = not yet
  std::vector<std::vector<int>> end_of_backward_;
  std::vector<size_t> next_;
  std::vector<std::vector<std::string>> rows_;
};

// Each of the actions that must be there comes once, Begin first and U last.
absl::Status CheckStage(const ActionList& actions, int stage, int micro_batches, bool backward) {
  const auto error = [stage](const std::string& message) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage, ": ", message));
  };
  const auto count = [&actions](const Action& action) {
    return std::count(actions.begin(), actions.end(), action);
  };
  for (const Action& action : actions) {
    const bool is_micro = action.kind == Kind::kForward || action.kind == Kind::kBackward;
    if (is_micro && (action.micro_batch < 0 || action.micro_batch >= micro_batches)) {
      return error(absl::StrCat("action ", ActionToString(action),
                                " names a micro-batch outside 0..", micro_batches - 1));
    }
    if (count(action) > 1) return error(absl::StrCat(ActionToString(action), " comes twice"));
  }
  for (int m = 0; m < micro_batches; ++m) {
    for (Kind kind : {Kind::kForward, Kind::kBackward}) {
      if (kind == Kind::kBackward && !backward) continue;
      const Action action{kind, m};
      if (count(action) == 0) return error(absl::StrCat(ActionToString(action), " is missing"));
    }
  }
  if (actions.empty() || actions.back().kind != Kind::kUpdate) return error("U is not last");
  if (actions.front().kind != Kind::kBegin) return error("Begin is not first");
  return absl::OkStatus();
}

}  // namespace

std::string ActionListToString(const ActionList& actions) {
  return absl::StrJoin(actions, " ", [](std::string* out, const Action& action) {
    absl::StrAppend(out, ActionToString(action));
  });
}

absl::StatusOr<ActionList> ParseActionList(const std::string& text) {
  ActionList actions;
  for (const std::string& word : std::vector<std::string>(
           absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty()))) {
    WEFT_ASSIGN_OR_RETURN(Action action, ParseAction(word));
    actions.push_back(action);
  }
  return actions;
}

ActionList GpipeActions(int stages, int stage, int micro_batches) {
  (void)stages;
  (void)stage;
  ActionList actions;
  for (int m = 0; m < micro_batches; ++m) actions.push_back({Kind::kForward, m});
  for (int m = 0; m < micro_batches; ++m) actions.push_back({Kind::kBackward, m});
  return Framed(std::move(actions));
}

ActionList OneForwardOneBackwardActions(int stages, int stage, int micro_batches) {
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  ActionList actions;
  int forward = 0;
  while (forward < warm_up) actions.push_back({Kind::kForward, forward++});
  for (int backward = 0; backward < micro_batches; ++backward) {
    if (forward < micro_batches) actions.push_back({Kind::kForward, forward++});
    actions.push_back({Kind::kBackward, backward});
  }
  return Framed(std::move(actions));
}

ActionList ForwardActions(int micro_batches) {
  ActionList actions;
  for (int m = 0; m < micro_batches; ++m) actions.push_back({Kind::kForward, m});
  return Framed(std::move(actions));
}

absl::StatusOr<ActionList> MakeActions(const std::string& schedule, int stages, int stage,
                                       int micro_batches, bool training) {
  if (schedule != "gpipe" && schedule != "1f1b") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown pipeline schedule '", schedule, "'; expected gpipe or 1f1b"));
  }
  if (stages < 1 || stage < 0 || stage >= stages || micro_batches < 0) {
    return absl::InvalidArgumentError(absl::StrCat("no actions for stage ", stage, " of ", stages,
                                                   " with ", micro_batches, " micro-batches"));
  }
  if (!training) return ForwardActions(micro_batches);
  // With one stage the warm-up is empty: F0 B0 F1 B1.
  if (stages == 1 || schedule == "1f1b") {
    return OneForwardOneBackwardActions(stages, stage, micro_batches);
  }
  return GpipeActions(stages, stage, micro_batches);
}

absl::Status ValidateActions(const std::vector<ActionList>& stages, int micro_batches) {
  bool backward = false;
  for (const ActionList& actions : stages) {
    for (const Action& action : actions) backward |= action.kind == Kind::kBackward;
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    WEFT_RETURN_IF_ERROR(CheckStage(stages[s], static_cast<int>(s), micro_batches, backward));
  }
  ActionPlayer player(stages, micro_batches);
  if (player.Play()) return absl::OkStatus();
  for (size_t s = 0; s < stages.size(); ++s) {
    if (player.next(s) == stages[s].size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("deadlock: stage ", s,
                                                   " waits for ever to start ",
                                                   ActionToString(stages[s][player.next(s)])));
  }
  return absl::InternalError("actions are left over, but no stage has any");
}

std::string ActionGrid(const std::vector<ActionList>& stages, int micro_batches) {
  ActionPlayer player(stages, micro_batches);
  player.Play();
  size_t width = 1;
  for (const ActionList& actions : stages) {
    for (const Action& action : actions) width = std::max(width, ActionToString(action).size());
  }
  std::string grid;
  for (size_t s = 0; s < stages.size(); ++s) {
    std::string line = absl::StrCat("stage ", s);
    for (const std::string& cell : player.rows()[s]) {
      const std::string shown = cell.empty() ? "." : cell;
      absl::StrAppend(&line, " ", shown, std::string(width - shown.size(), ' '));
    }
    line.erase(line.find_last_not_of(" .") + 1);
    absl::StrAppend(&grid, line, "\n");
  }
  return grid;
}

}  // namespace weft
