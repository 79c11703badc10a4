#include "placement/simulation/step_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_list.h"

namespace weft {

using Kind = StepInstruction::Kind;
using Event = PendingEvent::Kind;

namespace {

// The slowdown, in seconds, of a compute interval of `seconds` that overlaps a transfer of
// `message_seconds`.
double ContentionSlowdown(double seconds, double message_seconds, double contention) {
  return contention * std::min(seconds, message_seconds / (1 + contention));
}

}  // namespace

StepLoop::StepLoop(const StepModel& model, const SimulationOptions& options)
    : model_(model),
      options_(options),
      record_(model, options),
      ranks_(model.ranks.size()),
      channels_(model.channels.size()),
      collectives_(model.collectives.size()),
      links_(model.links.size()) {
  for (size_t link = 0; link < links_.size(); ++link) {
    links_[link].free.assign(static_cast<size_t>(model.links[link].lanes), 0);
  }
}

absl::StatusOr<Simulation> StepLoop::Run() && {
  ApplyTimedScript();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (options_.steps > 0) BeginStep(static_cast<int32_t>(rank));
  }
  while (!queue_.empty() && !expired_.has_value()) {
    const PendingEvent event = queue_.Pop();
    now_ = event.time;
    Handle(event);
  }
  std::optional<SimulatedStall> stall;
  if (expired_.has_value() || ended_ < ranks_.size()) {
    if (!expired_.has_value() && StoppedRanks().empty()) return Deadlock();
    stall = MakeStall();
    record_.ForgetStepsAfter(stall->at_seconds);
  }
  Simulation simulation = std::move(record_).Finish();
  simulation.stall = std::move(stall);
  return simulation;
}

// -- The script.

void StepLoop::ApplyTimedScript() {
  for (const ScriptedChange& change : options_.script) {
    if (change.at_step >= 0) continue;
    switch (change.kind) {
      case ScriptedChange::Kind::kRankSlower:
        ranks_[change.index].speed.SlowFrom(change.at_seconds, change.factor);
        break;
      case ScriptedChange::Kind::kLinkSlower:
        links_[change.index].speed.SlowFrom(change.at_seconds, change.factor);
        break;
      case ScriptedChange::Kind::kRankStops:
        ranks_[change.index].stops = std::min(ranks_[change.index].stops, change.at_seconds);
        break;
    }
  }
}

void StepLoop::ApplyStepScript(int32_t rank) {
  RankState& state = ranks_[rank];
  const bool is_first = state.step > link_step_;
  link_step_ = std::max(link_step_, state.step);
  for (const ScriptedChange& change : options_.script) {
    if (change.at_step != state.step) continue;
    if (change.kind == ScriptedChange::Kind::kLinkSlower) {
      if (is_first) links_[change.index].speed.SlowFrom(now_, change.factor);
    } else if (change.index == rank) {
      if (change.kind == ScriptedChange::Kind::kRankStops) {
        state.stops = std::min(state.stops, now_);
      } else {
        state.speed.SlowFrom(now_, change.factor);
      }
    }
  }
}

// -- A rank's steps and actions.

void StepLoop::BeginStep(int32_t rank) {
  ApplyStepScript(rank);
  if (HasStopped(rank)) return;
  RankState& state = ranks_[rank];
  state.action = state.instruction = 0;
  state.signals = state.jobs_begun = state.jobs_done = 0;
  queue_.Add(now_ + model_.ranks[rank].overhead_seconds, Event::kStepBegins, rank);
}

void StepLoop::Handle(const PendingEvent& event) {
  const int32_t index = event.index;
  if (event.kind == Event::kCollectiveEnds) {
    EndCollective(index);
    return;
  }
  if (HasStopped(index)) return;
  RankState& state = ranks_[index];
  switch (event.kind) {
    case Event::kStepBegins:
      state.action_begin = now_;
      BeginJobs(index);
      Advance(index);
      break;
    case Event::kInstructionEnds:
      if (state.computing_owed > 0 || state.messages_owed > 0) {
        // A collective that still runs does so for as much longer as it costs.
        state.collective_until += state.computing_owed;
        const double owed =
            std::exchange(state.computing_owed, 0) + std::exchange(state.messages_owed, 0);
        record_.AddCompute(index, owed);
        state.computes_until += owed;
        queue_.Add(now_ + owed, Event::kInstructionEnds, index);
        break;
      }
      EndInstruction(index);
      break;
    case Event::kSent:
      EnterLink(model_.ranks[index].channels[InstructionOf(index).index]);
      EndInstruction(index);
      break;
    case Event::kMessageArrived:
      if (Take(index, state.waiting.on)) EndInstruction(index);
      break;
    case Event::kCreditFree: {
      const Waiting waiting = std::exchange(state.waiting, {});
      CheckWait(index, StreamKind::kCompute, waiting);
      if (SendNow(index, waiting.on)) EndInstruction(index);
      break;
    }
    case Event::kCollectiveEnds:
      break;
  }
}

void StepLoop::Advance(int32_t rank) {
  RankState& state = ranks_[rank];
  const StepRoutine& routine = RoutineOf(rank);
  while (true) {
    if (state.action == static_cast<int32_t>(routine.actions.size())) {
      EndStep(rank);
      return;
    }
    const StepSegment& segment = model_.segments[routine.actions[state.action].segment];
    if (state.instruction == static_cast<int32_t>(segment.size())) {
      EndAction(rank);
      continue;
    }
    const StepInstruction& instruction = segment[state.instruction];
    state.instruction_begin = now_;
    if (!Begin(rank, instruction)) return;
    ++state.instruction;
  }
}

void StepLoop::EndInstruction(int32_t rank) {
  RankState& state = ranks_[rank];
  const StepInstruction& instruction = InstructionOf(rank);
  if (record_.wants_instructions() && instruction.kind != Kind::kCollective) {
    RecordSpan(rank, StreamKind::kCompute, InstructionText(rank, instruction),
               state.instruction_begin);
  }
  ++state.instruction;
  Advance(rank);
}

void StepLoop::EndAction(int32_t rank) {
  RankState& state = ranks_[rank];
  if (record_.wants_actions()) {
    RecordSpan(rank, StreamKind::kCompute, ActionToString(ActionOf(rank)), state.action_begin);
  }
  ++state.action;
  state.instruction = 0;
  state.action_begin = now_;
}

// As in StepProgram: a step ends when all jobs that were allowed have.
void StepLoop::EndStep(int32_t rank) {
  RankState& state = ranks_[rank];
  if (!Await(rank, AllowedJobs(rank))) return;
  record_.EndStep(rank, state.step, now_);
  ++state.step;
  if (state.step < options_.steps) {
    BeginStep(rank);
    return;
  }
  state.ended = true;
  ++ended_;
}

// -- Instructions.

bool StepLoop::Begin(int32_t rank, const StepInstruction& instruction) {
  const StepRank& rank_spec = model_.ranks[rank];
  int32_t index = instruction.index;
  int32_t name = instruction.name;
  if (instruction.kind == Kind::kSend || instruction.kind == Kind::kReceive) {
    index = rank_spec.channels[index];
    if (name < 0) name = model_.channels[index].name;
  } else if (instruction.kind == Kind::kCollective) {
    index = rank_spec.collectives[index];
    if (name < 0) name = model_.collectives[index].name;
  }
  if (record_.wants_events()) {
    RecordEvent(rank, StreamKind::kCompute, instruction.kind, index, name);
  }
  switch (instruction.kind) {
    case Kind::kCompute:
      return BeginCompute(rank, instruction);
    case Kind::kSend:
      return BeginSend(rank, index);
    case Kind::kReceive:
      return BeginReceive(rank, index);
    case Kind::kCollective:
      StartWaiting(rank, Wait::kCollective, index);
      Join(index);
      return false;
    case Kind::kSignal:
      ranks_[rank].signals = std::max(ranks_[rank].signals, instruction.index);
      BeginJobs(rank);
      return true;
    case Kind::kAwait:
      return Await(rank, instruction.index);
  }
  return true;
}

bool StepLoop::BeginCompute(int32_t rank, const StepInstruction& instruction) {
  if (instruction.seconds == 0) return true;
  const double usual = instruction.seconds * model_.ranks[rank].slow_down;
  RankState& state = ranks_[rank];
  const double end = state.speed.EndOf(now_, usual);
  state.computes_until = end;
  if (state.collective_until > now_) {
    Contend(rank, state.job_waiting.on, std::min(end, state.collective_until) - now_);
  }
  if (state.messages_until > now_) {
    state.messages_owed +=
        ContentionSlowdown(end - now_, state.messages_until - now_, state.messages_contention);
  }
  record_.AddCompute(rank, end - now_);
  queue_.Add(end, Event::kInstructionEnds, rank);
  return false;
}

bool StepLoop::BeginSend(int32_t rank, int32_t channel) {
  ChannelState& state = channels_[channel];
  const int32_t credits = model_.channels[channel].credits;
  if (credits <= 0 || state.in_flight < credits) return SendNow(rank, channel);
  state.sender_waits = true;
  StartWaiting(rank, Wait::kCredit, channel);
  return false;
}

bool StepLoop::SendNow(int32_t rank, int32_t channel) {
  ++channels_[channel].in_flight;
  const double busy = model_.channels[channel].send_seconds;
  if (busy == 0) {
    EnterLink(channel);
    return true;
  }
  record_.AddCommunication(rank, busy);
  queue_.Add(now_ + busy, Event::kSent, rank);
  return false;
}

void StepLoop::EnterLink(int32_t channel) {
  const StepChannel& channel_spec = model_.channels[channel];
  ChannelState& state = channels_[channel];
  double arrival = now_;
  if (channel_spec.link >= 0) {
    const StepLink& link = model_.links[channel_spec.link];
    LinkState& line = links_[channel_spec.link];
    double& free = *std::min_element(line.free.begin(), line.free.end());
    const double start = std::max(now_, free);
    const double factor = line.speed.FactorAt(start);
    const double transfer = link.bytes_per_second > 0
                                ? static_cast<double>(channel_spec.bytes) / link.bytes_per_second
                                : 0;
    free = start + transfer * factor;
    arrival = free + link.latency_seconds * factor;
  }
  if (state.first == state.messages.size()) {
    state.messages.clear();
    state.first = 0;
  }
  state.messages.push_back({now_ - channel_spec.send_seconds, arrival});
  if (channel_spec.contention > 0) {
    ContendWithMessage(channel_spec.from, channel_spec.contention, arrival);
    ContendWithMessage(channel_spec.to, channel_spec.contention, arrival);
  }
  if (!state.receiver_waits) return;
  state.receiver_waits = false;
  queue_.Add(arrival, Event::kMessageArrived, channel_spec.to);
}

bool StepLoop::BeginReceive(int32_t rank, int32_t channel) {
  ChannelState& state = channels_[channel];
  StartWaiting(rank, Wait::kMessage, channel);
  if (state.first == state.messages.size()) {
    state.receiver_waits = true;
    return false;
  }
  const double arrival = state.messages[state.first].arrival;
  if (arrival <= now_) return Take(rank, channel);
  queue_.Add(arrival, Event::kMessageArrived, rank);
  return false;
}

bool StepLoop::Take(int32_t rank, int32_t channel) {
  ChannelState& state = channels_[channel];
  const StepChannel& channel_spec = model_.channels[channel];
  const Message message = state.messages[state.first++];
  const Waiting waiting = std::exchange(ranks_[rank].waiting, {});
  CheckWait(rank, StreamKind::kCompute, waiting);
  record_.AddCommunication(rank, now_ - std::min(now_, std::max(waiting.since, message.sent)));
  --state.in_flight;
  if (state.sender_waits) {
    state.sender_waits = false;
    queue_.Add(now_, Event::kCreditFree, channel_spec.from);
  }
  if (record_.wants_instructions()) {
    RecordSpan(rank, StreamKind::kCompute,
               absl::StrCat("wait for ", NameOf("tensor", channel_spec.name, channel)),
               waiting.since);
    ranks_[rank].instruction_begin = now_;
  }
  if (channel_spec.receive_seconds == 0) return true;
  record_.AddCommunication(rank, channel_spec.receive_seconds);
  queue_.Add(now_ + channel_spec.receive_seconds, Event::kInstructionEnds, rank);
  return false;
}

// -- The communication stream.

int32_t StepLoop::AllowedJobs(int32_t rank) const {
  const std::vector<StepJob>& jobs = RoutineOf(rank).jobs;
  int32_t allowed = 0;
  while (allowed < static_cast<int32_t>(jobs.size()) &&
         jobs[allowed].signals <= ranks_[rank].signals) {
    ++allowed;
  }
  return allowed;
}

double StepLoop::JobSeconds(int32_t rank) const {
  const RankState& state = ranks_[rank];
  if (state.job_waiting.what == Wait::kNothing) return state.jobs_seconds;
  const int32_t collective = state.job_waiting.on;
  const double begun = AllHaveCome(collective) ? collectives_[collective].begun : now_;
  return state.jobs_seconds + now_ - begun;
}

bool StepLoop::Await(int32_t rank, int32_t jobs) {
  RankState& state = ranks_[rank];
  if (state.jobs_done >= jobs) return true;
  state.jobs_seconds_before = JobSeconds(rank);
  StartWaiting(rank, Wait::kJobs, jobs);
  return false;
}

void StepLoop::BeginJobs(int32_t rank) {
  RankState& state = ranks_[rank];
  const std::vector<StepJob>& jobs = RoutineOf(rank).jobs;
  if (state.jobs_begun > state.jobs_done || state.jobs_begun == static_cast<int32_t>(jobs.size()) ||
      jobs[state.jobs_begun].signals > state.signals) {
    return;
  }
  const int32_t collective = model_.ranks[rank].collectives[jobs[state.jobs_begun].collective];
  ++state.jobs_begun;
  state.job_waiting = {Wait::kCollective, collective, now_};
  if (record_.wants_events()) {
    RecordEvent(rank, StreamKind::kCommunication, Kind::kCollective, collective,
                model_.collectives[collective].name);
  }
  Join(collective);
}

void StepLoop::EndJob(int32_t rank) {
  RankState& state = ranks_[rank];
  ++state.jobs_done;
  BeginJobs(rank);
  if (state.waiting.what != Wait::kJobs || state.jobs_done < state.waiting.on) return;
  state.waiting = {};
  record_.AddCommunication(rank, JobSeconds(rank) - state.jobs_seconds_before);
  const bool at_end = state.action == static_cast<int32_t>(RoutineOf(rank).actions.size());
  if (at_end) {
    EndStep(rank);
  } else {
    EndInstruction(rank);
  }
}

// -- Collectives.

double StepLoop::CollectiveSeconds(int32_t collective) const {
  double factor = 1;
  for (const auto& [link, bytes] : model_.collectives[collective].link_bytes) {
    factor = std::max(factor, links_[link].speed.FactorAt(now_));
  }
  return model_.collectives[collective].seconds * factor;
}

void StepLoop::Contend(int32_t rank, int32_t collective, double seconds) {
  const double owed = model_.collectives[collective].contention * seconds;
  ranks_[rank].computing_owed += owed;
  ranks_[rank].collective_owed += owed;
}

void StepLoop::ContendWithMessage(int32_t rank, double contention, double until) {
  RankState& state = ranks_[rank];
  // Messages at the same time share a thread: what is counted already does not count again.
  const double from = std::max(now_, state.messages_until);
  if (until <= from) return;
  if (state.computes_until > from) {
    state.messages_owed +=
        ContentionSlowdown(state.computes_until - from, until - from, contention);
  }
  state.messages_until = until;
  state.messages_contention = contention;
}

bool StepLoop::RunsOn(int32_t collective) {
  double owed = 0;
  for (const int32_t member : model_.collectives[collective].members) {
    owed = std::max(owed, std::exchange(ranks_[member].collective_owed, 0));
  }
  if (owed > 0) queue_.Add(now_ + owed, Event::kCollectiveEnds, collective);
  return owed > 0;
}

void StepLoop::Join(int32_t collective) {
  CollectiveState& state = collectives_[collective];
  const std::vector<int32_t>& members = model_.collectives[collective].members;
  if (++state.arrived < static_cast<int32_t>(members.size())) return;
  state.begun = now_;
  for (const int32_t member : members) {
    const StreamKind stream = StreamIn(member, collective);
    CheckWait(
        member, stream,
        stream == StreamKind::kCommunication ? ranks_[member].job_waiting : ranks_[member].waiting);
  }
  const double seconds = CollectiveSeconds(collective);
  queue_.Add(now_ + seconds, Event::kCollectiveEnds, collective);
  if (model_.collectives[collective].contention <= 0) return;
  for (const int32_t member : members) {
    RankState& rank = ranks_[member];
    if (StreamIn(member, collective) != StreamKind::kCommunication) continue;
    rank.collective_until = now_ + seconds;
    if (rank.computes_until > now_) {
      Contend(member, collective, std::min(seconds, rank.computes_until - now_));
    }
  }
}

StreamKind StepLoop::StreamIn(int32_t member, int32_t collective) const {
  const Waiting& job = ranks_[member].job_waiting;
  return job.what == Wait::kCollective && job.on == collective ? StreamKind::kCommunication
                                                               : StreamKind::kCompute;
}

void StepLoop::EndCollective(int32_t collective) {
  const std::vector<int32_t>& members = model_.collectives[collective].members;
  // With a member that stopped in the middle it never ends.
  if (std::any_of(members.begin(), members.end(), [&](int32_t m) { return HasStopped(m); })) return;
  if (RunsOn(collective)) return;
  // All leave before any goes on: it may join the next run at once.
  std::vector<StreamKind> streams;
  for (const int32_t member : members) {
    streams.push_back(StreamIn(member, collective));
    LeaveCollective(member, streams.back(), collective);
  }
  collectives_[collective].arrived = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    if (streams[m] == StreamKind::kCommunication) {
      EndJob(members[m]);
    } else {
      EndInstruction(members[m]);
    }
  }
}

void StepLoop::LeaveCollective(int32_t member, StreamKind stream, int32_t collective) {
  RankState& state = ranks_[member];
  const bool beside = stream == StreamKind::kCommunication;
  const double begun = collectives_[collective].begun;
  const Waiting waiting = std::exchange(beside ? state.job_waiting : state.waiting, {});
  if (beside) {
    state.jobs_seconds += now_ - begun;
  } else {
    record_.AddCommunication(member, now_ - begun);
  }
  if (!record_.wants_instructions() && !(beside && record_.wants_actions())) return;
  const std::string name = NameOf("collective", model_.collectives[collective].name, collective);
  const int32_t micro_batch = beside ? -1 : MicroBatchOf(member);
  if (record_.wants_instructions()) {
    record_.AddSpan({member, stream, state.step, micro_batch,
                     absl::StrCat("wait for members of ", name), waiting.since, begun});
  }
  record_.AddSpan({member, stream, state.step, micro_batch, name, begun, now_});
}

// -- Records.

void StepLoop::CheckWait(int32_t rank, StreamKind stream, const Waiting& waiting) {
  const double timeout = options_.stall_timeout_seconds;
  if (timeout <= 0 || now_ - waiting.since <= timeout) return;
  if (expired_.has_value() && expired_->since <= waiting.since) return;
  expired_ = Describe(rank, stream, waiting);
}

int32_t StepLoop::MicroBatchOf(int32_t rank) const {
  const RankState& state = ranks_[rank];
  if (state.action >= static_cast<int32_t>(RoutineOf(rank).actions.size())) return -1;
  const Action& action = ActionOf(rank);
  const bool is_micro = action.kind != Action::Kind::kBegin && action.kind != Action::Kind::kUpdate;
  return is_micro ? action.micro_batch : -1;
}

void StepLoop::RecordEvent(int32_t rank, StreamKind stream, Kind kind, int32_t index,
                           int32_t name) {
  record_.AddEvent({now_, rank, stream, ranks_[rank].step, kind, index, name,
                    stream == StreamKind::kCommunication ? -1 : MicroBatchOf(rank)});
}

void StepLoop::RecordSpan(int32_t rank, StreamKind stream, std::string name, double start) {
  record_.AddSpan(
      {rank, stream, ranks_[rank].step, MicroBatchOf(rank), std::move(name), start, now_});
}

std::string StepLoop::InstructionText(int32_t rank, const StepInstruction& instruction) const {
  const StepRank& rank_spec = model_.ranks[rank];
  switch (instruction.kind) {
    case Kind::kCompute:
      return instruction.name >= 0 ? model_.names[instruction.name] : "compute";
    case Kind::kSend:
    case Kind::kReceive: {
      const int32_t channel = rank_spec.channels[instruction.index];
      return absl::StrCat(instruction.kind == Kind::kSend ? "send " : "receive ",
                          NameOf("tensor", model_.channels[channel].name, channel));
    }
    case Kind::kAwait:
      return "wait for the collectives beside";
    default:
      return "";
  }
}

}  // namespace weft
