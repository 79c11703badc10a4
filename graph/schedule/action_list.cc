#include "graph/schedule/action_list.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/schedule/action_kind.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<Action> ParseAction(const std::string& word) {
  if (word == "Begin") return Action{ActionKind::kBegin, 0};
  if (word == "U") return Action{ActionKind::kUpdate, 0};
  const std::vector<std::string> parts = absl::StrSplit(word.substr(1), '.');
  std::vector<int> numbers;
  for (const std::string& part : parts) {
    const bool is_digits = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    int number = 0;
    if (is_digits && absl::SimpleAtoi(part, &number)) numbers.push_back(number);
  }
  const bool has_numbers = numbers.size() == parts.size() && numbers.size() <= 2;
  const size_t kind = std::string("FBW").find(word[0]);
  if (!has_numbers || kind == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown action '", word, "'; expected Begin, U, or F, B or W with a micro-batch and ",
        "perhaps a chunk (F0, B2, W1, F0.1)"));
  }
  constexpr ActionKind kKinds[] = {ActionKind::kForward, ActionKind::kBackward,
                                   ActionKind::kWeightGradient};
  return Action{kKinds[kind], numbers[0], numbers.size() == 2 ? numbers[1] : 0};
}

ActionList Framed(ActionList middle) {
  middle.insert(middle.begin(), Action{ActionKind::kBegin, 0});
  middle.push_back({ActionKind::kUpdate, 0});
  return middle;
}

// The actions of one kind on a rank with several chunks: groups of `ranks` micro-batches go through
// one chunk after the other. The last group is filled up.
ActionList InGroups(ActionKind kind, int ranks, int chunks, int micro_batches) {
  ActionList actions;
  for (int first = 0; first < micro_batches; first += ranks) {
    for (int i = 0; i < chunks; ++i) {
      const int chunk = kind == ActionKind::kForward ? i : chunks - 1 - i;
      for (int m = first; m < first + ranks; ++m) actions.push_back({kind, m, chunk});
    }
  }
  return actions;
}

void RemoveFillers(int micro_batches, ActionList& actions) {
  actions.erase(
      std::remove_if(actions.begin(), actions.end(),
                     [=](const Action& action) { return action.micro_batch >= micro_batches; }),
      actions.end());
}

}  // namespace

std::string ActionToString(const Action& action) {
  const std::string chunk = action.chunk == 0 ? "" : absl::StrCat(".", action.chunk);
  switch (action.kind) {
    case ActionKind::kBegin:
      return "Begin";
    case ActionKind::kForward:
      return absl::StrCat("F", action.micro_batch, chunk);
    case ActionKind::kBackward:
      return absl::StrCat("B", action.micro_batch, chunk);
    case ActionKind::kWeightGradient:
      return absl::StrCat("W", action.micro_batch, chunk);
    case ActionKind::kUpdate:
      return "U";
  }
  return "?";
}

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

bool SplitsBackward(const ActionList& actions) {
  return std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kWeightGradient;
  });
}

int ChunksOf(const ActionList& actions) {
  int chunks = 1;
  for (const Action& action : actions) chunks = std::max(chunks, action.chunk + 1);
  return chunks;
}

int MaxInFlight(const ActionList& actions) {
  const ActionKind last =
      SplitsBackward(actions) ? ActionKind::kWeightGradient : ActionKind::kBackward;
  int now = 0;
  int max_in_flight = 0;
  bool is_training = false;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) max_in_flight = std::max(max_in_flight, ++now);
    if (action.kind != last) continue;
    --now;
    is_training = true;
  }
  return is_training ? max_in_flight : 0;
}

int MicroBatchesHeld(const ActionList& actions) {
  const int chunks = ChunksOf(actions);
  return std::max(1, (MaxInFlight(actions) + chunks - 1) / chunks);
}

ActionList GpipeActions(int stages, int stage, int micro_batches) {
  (void)stages;
  (void)stage;
  ActionList actions;
  for (int m = 0; m < micro_batches; ++m) actions.push_back({ActionKind::kForward, m});
  for (int m = 0; m < micro_batches; ++m) actions.push_back({ActionKind::kBackward, m});
  return Framed(std::move(actions));
}

ActionList OneForwardOneBackwardActions(int stages, int stage, int micro_batches) {
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  ActionList actions;
  int forward = 0;
  while (forward < warm_up) actions.push_back({ActionKind::kForward, forward++});
  for (int backward = 0; backward < micro_batches; ++backward) {
    if (forward < micro_batches) actions.push_back({ActionKind::kForward, forward++});
    actions.push_back({ActionKind::kBackward, backward});
  }
  return Framed(std::move(actions));
}

ActionList ZeroBubbleActions(int stages, int stage, int micro_batches) {
  ActionList actions;
  int weight_gradient = 0;
  for (const Action& action : OneForwardOneBackwardActions(stages, stage, micro_batches)) {
    if (action.kind == ActionKind::kUpdate) break;
    actions.push_back(action);
    if (action.kind == ActionKind::kBackward && action.micro_batch >= stage) {
      actions.push_back({ActionKind::kWeightGradient, weight_gradient++});
    }
  }
  while (weight_gradient < micro_batches) {
    actions.push_back({ActionKind::kWeightGradient, weight_gradient++});
  }
  actions.push_back({ActionKind::kUpdate, 0});
  return actions;
}

ActionList InterleavedActions(int ranks, int rank, int chunks, int micro_batches) {
  const ActionList forward = InGroups(ActionKind::kForward, ranks, chunks, micro_batches);
  const ActionList backward = InGroups(ActionKind::kBackward, ranks, chunks, micro_batches);
  const size_t warm_up = static_cast<size_t>((ranks - rank - 1) * 2 + (chunks - 1) * ranks);
  ActionList actions;
  size_t next = 0;
  while (next < std::min(warm_up, forward.size())) actions.push_back(forward[next++]);
  for (const Action& action : backward) {
    if (next < forward.size()) actions.push_back(forward[next++]);
    actions.push_back(action);
  }
  RemoveFillers(micro_batches, actions);
  return Framed(std::move(actions));
}

ActionList ForwardActions(int ranks, int chunks, int micro_batches) {
  ActionList actions = InGroups(ActionKind::kForward, ranks, chunks, micro_batches);
  RemoveFillers(micro_batches, actions);
  return Framed(std::move(actions));
}

absl::Status CheckScheduleName(const std::string& schedule) {
  for (const char* known : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
    if (schedule == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown pipeline schedule '", schedule,
                   "'; expected gpipe, 1f1b, interleaved or zero_bubble"));
}

absl::Status CheckSchedule(const std::string& schedule, int chunks) {
  WEFT_RETURN_IF_ERROR(CheckScheduleName(schedule));
  const bool is_interleaved = schedule == "interleaved";
  if (is_interleaved && chunks < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule interleaved with ", chunks,
                     " chunk is 1f1b; say how many chunks each rank runs, for example chunks 2"));
  }
  if (!is_interleaved && chunks != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the schedule ", schedule,
                                                   " runs one chunk per rank, not ", chunks,
                                                   "; several need the schedule interleaved"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ActionList> MakeActions(const std::string& schedule, int ranks, int rank,
                                       int micro_batches, bool training, int chunks) {
  WEFT_RETURN_IF_ERROR(CheckSchedule(schedule, chunks));
  if (ranks < 1 || rank < 0 || rank >= ranks || micro_batches < 0) {
    return absl::InvalidArgumentError(absl::StrCat("no actions for stage ", rank, " of ", ranks,
                                                   " with ", micro_batches, " micro-batches"));
  }
  if (!training) return ForwardActions(ranks, chunks, micro_batches);
  if (chunks > 1) return InterleavedActions(ranks, rank, chunks, micro_batches);
  // With one stage the warm-up is empty: F0 B0 F1 B1.
  if (ranks == 1 || schedule == "1f1b") {
    return OneForwardOneBackwardActions(ranks, rank, micro_batches);
  }
  if (schedule == "zero_bubble") return ZeroBubbleActions(ranks, rank, micro_batches);
  return GpipeActions(ranks, rank, micro_batches);
}

}  // namespace weft
