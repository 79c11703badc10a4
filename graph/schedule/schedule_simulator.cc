#include "graph/schedule/schedule_simulator.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_kind.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr double kNever = -1;  // an end that is not known yet

std::vector<ScheduleChannel> Chain(int stages) {
  std::vector<ScheduleChannel> channels;
  for (int s = 0; s + 1 < stages; ++s) {
    channels.push_back({"activation", s, ActionKind::kForward, s + 1, ActionKind::kForward});
    channels.push_back({"gradient", s + 1, ActionKind::kBackward, s, ActionKind::kBackward});
  }
  return channels;
}

std::string ChannelText(const ScheduleChannel& channel) {
  return absl::StrCat("the channel of '", channel.name, "' from stage ", channel.from, " to ",
                      channel.to);
}

// Every rank runs its list in order, so all times follow from those of earlier actions, in whatever
// order the ranks are looked at.
class ScheduleSimulator {
 public:
  ScheduleSimulator(const std::vector<ActionList>& ranks, const ScheduleOptions& options)
      : lists_(ranks), options_(options), states_(ranks.size()) {
    int chunks = 1;
    for (const ActionList& list : ranks) {
      chunks = std::max(chunks, ChunksOf(list));
      splits_backward_.push_back(SplitsBackward(list));
    }
    const int stages = chunks * static_cast<int>(ranks.size());
    for (const ScheduleChannel& channel :
         options.channels.has_value() ? *options.channels : Chain(stages)) {
      channels_.push_back({channel, std::vector<double>(options.micro_batches, kNever), {}, 0});
    }
    ends_.assign(3, std::vector<std::vector<double>>(
                        stages, std::vector<double>(options.micro_batches, kNever)));
    simulation_.actions.resize(ranks.size());
    outgoing_.assign(3, std::vector<std::vector<size_t>>(stages));
    incoming_ = outgoing_;
    for (size_t c = 0; c < channels_.size(); ++c) {
      const ScheduleChannel& channel = channels_[c].channel;
      if (channel.from >= stages || channel.to >= stages) continue;
      outgoing_[Row(channel.from_kind)][channel.from].push_back(c);
      incoming_[Row(channel.to_kind)][channel.to].push_back(c);
    }
  }

  absl::StatusOr<ScheduleSimulation> Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < lists_.size(); ++r) {
        while (Advance(r)) moved = true;
      }
    }
    WEFT_RETURN_IF_ERROR(CheckEnd());
    Summarize();
    return std::move(simulation_);
  }

 private:
  struct ChannelState {
    ScheduleChannel channel;
    std::vector<double> sent;   // by micro-batch
    std::vector<double> taken;  // in the order of the sends
    int sends = 0;
  };
  struct RankState {
    size_t next = 0;
    double free = 0;       // when the rank can go on
    size_t unsent = 0;     // messages of the action before `next` that are still to be sent: the
    bool sending = false;  // outgoing channels of it from `unsent` on
  };

  static size_t Row(ActionKind kind) {
    return kind == ActionKind::kForward ? 0 : kind == ActionKind::kBackward ? 1 : 2;
  }
  int StageOf(size_t rank, const Action& action) const {
    return action.chunk * static_cast<int>(lists_.size()) + static_cast<int>(rank);
  }
  int CreditsOf(const ScheduleChannel& channel) const {
    return channel.credits > 0 ? channel.credits : options_.credits;
  }
  bool InRange(const Action& action) const {
    return IsMicro(action) && action.micro_batch >= 0 &&
           action.micro_batch < options_.micro_batches;
  }

  double CostOf(size_t rank, const Action& action) const {
    const int stage = StageOf(rank, action);
    const StageDurations costs = stage < static_cast<int>(options_.costs.size())
                                     ? options_.costs[static_cast<size_t>(stage)]
                                     : StageDurations();
    switch (action.kind) {
      case ActionKind::kBegin:
        return costs.begin;
      case ActionKind::kForward:
        return costs.forward;
      case ActionKind::kBackward:
        return costs.backward + (splits_backward_[rank] ? 0 : costs.weight_gradient);
      case ActionKind::kWeightGradient:
        return costs.weight_gradient;
      case ActionKind::kUpdate:
        return costs.update;
    }
    return 0;
  }

  // The action of the same stage and micro-batch that must have ended; none for a forward.
  static std::optional<ActionKind> Before(ActionKind kind) {
    if (kind == ActionKind::kBackward) return ActionKind::kForward;
    if (kind == ActionKind::kWeightGradient) return ActionKind::kBackward;
    return std::nullopt;
  }

  // The channel whose message is missing; null if none is.
  const ChannelState* Missing(size_t rank, const Action& action) const {
    for (const size_t c : incoming_[Row(action.kind)][StageOf(rank, action)]) {
      if (channels_[c].sent[action.micro_batch] == kNever) return &channels_[c];
    }
    return nullptr;
  }

  bool Advance(size_t rank) {
    RankState& state = states_[rank];
    if (state.sending) return FinishSends(rank);
    if (state.next == lists_[rank].size()) return false;
    const Action& action = lists_[rank][state.next];
    double start = state.free;
    if (InRange(action)) {
      const int m = action.micro_batch;
      const int stage = StageOf(rank, action);
      if (const std::optional<ActionKind> before = Before(action.kind)) {
        if (ends_[Row(*before)][stage][m] == kNever) return false;
      }
      if (Missing(rank, action) != nullptr) return false;
      for (const size_t c : incoming_[Row(action.kind)][stage]) {
        start = std::max(start, channels_[c].sent[m] + options_.latency);
      }
      for (const size_t c : incoming_[Row(action.kind)][stage]) channels_[c].taken.push_back(start);
      ends_[Row(action.kind)][stage][m] = start + CostOf(rank, action);
    }
    state.free = start + CostOf(rank, action);
    simulation_.actions[rank].push_back({action, start, state.free});
    ++state.next;
    state.sending = InRange(action);
    state.unsent = 0;
    return true;
  }

  bool FinishSends(size_t rank) {
    RankState& state = states_[rank];
    const Action& action = lists_[rank][state.next - 1];
    const std::vector<size_t>& outgoing = outgoing_[Row(action.kind)][StageOf(rank, action)];
    for (; state.unsent < outgoing.size(); ++state.unsent) {
      ChannelState& channel = channels_[outgoing[state.unsent]];
      const int credits = CreditsOf(channel.channel);
      if (credits > 0 && channel.sends >= credits) {
        const size_t freed_by = static_cast<size_t>(channel.sends - credits);
        if (freed_by >= channel.taken.size()) return false;
        state.free = std::max(state.free, channel.taken[freed_by]);
      }
      channel.sent[action.micro_batch] = state.free;
      ++channel.sends;
    }
    state.sending = false;
    return true;
  }

  // A message without credit first: who waits for its sender is only a consequence.
  absl::Status CheckEnd() const {
    for (size_t r = 0; r < lists_.size(); ++r) {
      if (!states_[r].sending) continue;
      const Action& action = lists_[r][states_[r].next - 1];
      const int stage = StageOf(r, action);
      const ChannelState& channel =
          channels_[outgoing_[Row(action.kind)][stage][states_[r].unsent]];
      return absl::InvalidArgumentError(
          absl::StrCat("deadlock: stage ", stage, " waits for ever to end ", ActionToString(action),
                       ": ", ChannelText(channel.channel), " has no credit left for micro-batch ",
                       action.micro_batch, " (it has ", CreditsOf(channel.channel), ")"));
    }
    for (size_t r = 0; r < lists_.size(); ++r) {
      if (states_[r].next < lists_[r].size()) return Stuck(r, lists_[r][states_[r].next]);
    }
    return absl::OkStatus();
  }

  absl::Status Stuck(size_t rank, const Action& action) const {
    const int stage = StageOf(rank, action);
    const std::optional<ActionKind> before = Before(action.kind);
    std::string cause;
    if (before.has_value() && ends_[Row(*before)][stage][action.micro_batch] == kNever) {
      cause = absl::StrCat(ActionToString({*before, action.micro_batch, action.chunk}),
                           " of its own comes later");
    } else if (const ChannelState* channel = Missing(rank, action)) {
      cause = absl::StrCat(ChannelText(channel->channel), " never brings micro-batch ",
                           action.micro_batch);
    }
    return absl::InvalidArgumentError(absl::StrCat("deadlock: stage ", stage,
                                                   " waits for ever to start ",
                                                   ActionToString(action), ": ", cause));
  }

  void Summarize() {
    for (const RankState& state : states_)
      simulation_.makespan = std::max(simulation_.makespan, state.free);
    for (size_t r = 0; r < lists_.size(); ++r) {
      double busy = 0;
      for (const SimulatedAction& simulated : simulation_.actions[r])
        busy += CostOf(r, simulated.action);
      simulation_.busy.push_back(busy);
      simulation_.bubble_share.push_back(simulation_.makespan > 0 ? 1 - busy / simulation_.makespan
                                                                  : 0);
      simulation_.max_in_flight.push_back(MaxInFlight(lists_[r]));
    }
  }

  const std::vector<ActionList>& lists_;
  const ScheduleOptions& options_;
  std::vector<bool> splits_backward_;  // by rank
  std::vector<ChannelState> channels_;
  std::vector<std::vector<std::vector<double>>> ends_;      // by kind, stage, micro-batch
  std::vector<std::vector<std::vector<size_t>>> outgoing_;  // by kind, stage: into channels_
  std::vector<std::vector<std::vector<size_t>>> incoming_;
  std::vector<RankState> states_;
  ScheduleSimulation simulation_;
};

}  // namespace

double ScheduleSimulation::BubbleShare() const {
  if (bubble_share.empty()) return 0;
  return std::accumulate(bubble_share.begin(), bubble_share.end(), 0.0) /
         static_cast<double>(bubble_share.size());
}

absl::StatusOr<ScheduleSimulation> SimulateSchedule(const std::vector<ActionList>& ranks,
                                                    const ScheduleOptions& options) {
  return ScheduleSimulator(ranks, options).Run();
}

std::string ActionGrid(const std::vector<ActionList>& ranks, int micro_batches) {
  ScheduleOptions options;
  options.micro_batches = micro_batches;
  int chunks = 1;
  size_t width = 1;
  bool splits = false;
  for (const ActionList& actions : ranks) {
    chunks = std::max(chunks, ChunksOf(actions));
    splits |= SplitsBackward(actions);
    for (const Action& action : actions) width = std::max(width, ActionToString(action).size());
  }
  const double weight_gradient = splits ? 1 : 0;  // B and W, or both as one B
  options.costs.assign(ranks.size() * static_cast<size_t>(chunks), {1, 1, 1, weight_gradient, 1});
  const absl::StatusOr<ScheduleSimulation> simulation = SimulateSchedule(ranks, options);
  if (!simulation.ok()) return absl::StrCat(std::string(simulation.status().message()), "\n");
  std::string grid;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::string line = absl::StrCat("stage ", r);
    double now = 0;
    for (const SimulatedAction& simulated : simulation->actions[r]) {
      for (; now < simulated.start; ++now)
        absl::StrAppend(&line, " .", std::string(width - 1, ' '));
      const std::string text = ActionToString(simulated.action);
      absl::StrAppend(&line, " ", text, std::string(width - text.size(), ' '));
      ++now;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&grid, line, "\n");
  }
  return grid;
}

}  // namespace weft
