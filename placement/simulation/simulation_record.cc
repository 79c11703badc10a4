#include "placement/simulation/simulation_record.h"

#include <algorithm>

namespace weft {
namespace {

// How often a routine uses each entry of its ranks' tables in a step.
struct Uses {
  std::vector<int64_t> sends;
  std::vector<int64_t> collectives;
};

void Count(int32_t entry, int64_t times, std::vector<int64_t>& counts) {
  if (static_cast<size_t>(entry) >= counts.size()) counts.resize(static_cast<size_t>(entry) + 1, 0);
  counts[static_cast<size_t>(entry)] += times;
}

Uses UsesOf(const StepModel& model, const StepRoutine& routine) {
  std::vector<int64_t> runs(model.segments.size(), 0);
  for (const StepAction& action : routine.actions) ++runs[action.segment];
  Uses uses;
  for (size_t segment = 0; segment < runs.size(); ++segment) {
    if (runs[segment] == 0) continue;
    for (const StepInstruction& instruction : model.segments[segment]) {
      if (instruction.kind == StepInstruction::Kind::kSend) {
        Count(instruction.index, runs[segment], uses.sends);
      } else if (instruction.kind == StepInstruction::Kind::kCollective) {
        Count(instruction.index, runs[segment], uses.collectives);
      }
    }
  }
  for (const StepJob& job : routine.jobs) Count(job.collective, 1, uses.collectives);
  return uses;
}

// Bytes of payload of one step, by link and by rank.
void CountBytes(const StepModel& model, Simulation& result) {
  result.link_bytes.assign(model.links.size(), 0);
  result.sent_bytes.assign(model.ranks.size(), 0);
  std::vector<Uses> uses;
  for (const StepRoutine& routine : model.routines) uses.push_back(UsesOf(model, routine));
  for (size_t r = 0; r < model.ranks.size(); ++r) {
    const StepRank& rank = model.ranks[r];
    const Uses& rank_uses = uses[rank.routine];
    for (size_t entry = 0; entry < rank_uses.sends.size(); ++entry) {
      if (rank_uses.sends[entry] == 0) continue;
      const StepChannel& channel = model.channels[rank.channels[entry]];
      const int64_t bytes = rank_uses.sends[entry] * channel.bytes;
      if (channel.link >= 0) result.link_bytes[channel.link] += bytes;
      result.sent_bytes[r] += bytes;
    }
    for (size_t entry = 0; entry < rank_uses.collectives.size(); ++entry) {
      if (rank_uses.collectives[entry] == 0) continue;
      const StepCollective& collective = model.collectives[rank.collectives[entry]];
      const std::vector<int32_t>& members = collective.members;
      const auto member = static_cast<size_t>(
          std::find(members.begin(), members.end(), static_cast<int32_t>(r)) - members.begin());
      if (member < collective.member_bytes.size()) {
        result.sent_bytes[r] += rank_uses.collectives[entry] * collective.member_bytes[member];
      }
      if (member != 0) continue;  // once a run
      for (const auto& [link, bytes] : collective.link_bytes) {
        result.link_bytes[link] += rank_uses.collectives[entry] * bytes;
      }
    }
  }
}

}  // namespace

SimulationRecord::SimulationRecord(const StepModel& model, const SimulationOptions& options)
    : model_(model),
      detail_(options.timeline),
      wants_events_(options.record_events),
      ranks_(model.ranks.size()),
      ended_(static_cast<size_t>(std::max(options.steps, 0)), 0),
      step_ends_(ended_.size(), 0) {}

void SimulationRecord::AddSpan(TimelineSpan span) {
  if (span.end > span.start) result_.timeline.push_back(std::move(span));
}

void SimulationRecord::EndStep(int32_t rank, int step, double time) {
  ranks_[rank].ended = ranks_[rank].now;
  ranks_[rank].steps = step + 1;
  ranks_[rank].end = time;
  step_ends_[step] = std::max(step_ends_[step], time);
  ++ended_[step];
}

void SimulationRecord::ForgetStepsAfter(double time) {
  for (size_t step = 0; step < ended_.size(); ++step) {
    if (step_ends_[step] > time) ended_[step] = 0;
  }
}

// A rank that ended as many steps as all waits for the last one.
void SimulationRecord::FinishRanks() {
  const auto steps = static_cast<int>(step_ends_.size());
  std::vector<int> of_stage;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const OfRank& rank = ranks_[r];
    const double count = std::max(rank.steps, 1);
    const double whole =
        rank.steps == steps && steps > 0 ? std::max(rank.end, step_ends_.back()) : rank.end;
    RankTime time;
    time.compute = rank.ended.compute / count;
    time.communication = rank.ended.communication / count;
    time.bubble = std::max(0.0, whole / count - time.compute - time.communication);
    result_.ranks.push_back(time);
    const auto stage = static_cast<size_t>(model_.ranks[r].stage);
    if (stage >= of_stage.size()) of_stage.resize(stage + 1, 0);
    result_.stage_utilisation.resize(of_stage.size(), 0);
    ++of_stage[stage];
    if (whole > 0) result_.stage_utilisation[stage] += time.compute * count / whole;
  }
  for (size_t stage = 0; stage < of_stage.size(); ++stage) {
    if (of_stage[stage] > 0) result_.stage_utilisation[stage] /= of_stage[stage];
  }
}

Simulation SimulationRecord::Finish() && {
  size_t steps = 0;
  while (steps < ended_.size() && ended_[steps] == static_cast<int>(ranks_.size())) ++steps;
  step_ends_.resize(steps);
  if (steps == 1) result_.step_seconds = step_ends_.back();
  if (steps > 1) {
    result_.step_seconds =
        (step_ends_.back() - step_ends_.front()) / static_cast<double>(steps - 1);
  }
  FinishRanks();
  CountBytes(model_, result_);
  result_.step_ends = std::move(step_ends_);
  return std::move(result_);
}

}  // namespace weft
