// What StepLoop says of streams that wait too long, or for ever.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "placement/simulation/step_loop.h"

namespace weft {
namespace {

constexpr size_t kWaitsInText = 4;

std::string RanksText(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "its own work";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// "tensor 'h' from rank 0 (step 3, micro-batch 2)"
std::string WaitText(const SimulatedWait& wait) {
  const char* const from = wait.what.starts_with("a credit") ? " to " : " from ";
  return absl::StrCat(wait.what, from, RanksText(wait.on_ranks), " (step ", wait.step,
                      wait.micro_batch >= 0 ? absl::StrCat(", micro-batch ", wait.micro_batch) : "",
                      ")");
}

std::string SecondsText(double seconds) { return absl::FormatDuration(absl::Seconds(seconds)); }

}  // namespace

std::string StepLoop::NameOf(const char* kind, int32_t name, int32_t index) const {
  if (name < 0) return absl::StrCat(kind, " ", index);
  return absl::StrCat(kind, " '", model_.names[name], "'");
}

// Who has not come; where all have, who came last.
std::vector<int32_t> StepLoop::MissingMembers(int32_t rank, int32_t collective) const {
  const bool all = AllHaveCome(collective);
  std::vector<int32_t> missing;
  for (const int32_t member : model_.collectives[collective].members) {
    const RankState& state = ranks_[member];
    const auto waits_for = [&](const Waiting& waiting) {
      return waiting.what == Wait::kCollective && waiting.on == collective &&
             !(all && waiting.since == now_);
    };
    const bool is_there = waits_for(state.waiting) || waits_for(state.job_waiting);
    if (member != rank && (!is_there || HasStopped(member))) missing.push_back(member);
  }
  return missing;
}

SimulatedWait StepLoop::Describe(int32_t rank, StreamKind stream, const Waiting& waiting) const {
  SimulatedWait wait;
  wait.rank = rank;
  wait.stream = stream;
  wait.step = ranks_[rank].step;
  wait.micro_batch = stream == StreamKind::kCommunication ? -1 : MicroBatchOf(rank);
  wait.since = waiting.since;
  switch (waiting.what) {
    case Wait::kMessage: {
      const StepChannel& channel = model_.channels[waiting.on];
      wait.what = NameOf("tensor", channel.name, waiting.on);
      wait.on_ranks = {channel.from};
      break;
    }
    case Wait::kCredit: {
      const StepChannel& channel = model_.channels[waiting.on];
      wait.what = absl::StrCat("a credit to send ", NameOf("tensor", channel.name, waiting.on));
      wait.on_ranks = {channel.to};
      break;
    }
    case Wait::kCollective:
      wait.what = NameOf("collective", model_.collectives[waiting.on].name, waiting.on);
      wait.on_ranks = MissingMembers(rank, waiting.on);
      break;
    case Wait::kJobs:
    case Wait::kNothing:
      wait.what = absl::StrCat("the first ", waiting.on, " collectives beside it");
      break;
  }
  return wait;
}

std::vector<SimulatedWait> StepLoop::AllWaits() const {
  std::vector<SimulatedWait> waits;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    if (HasStopped(rank)) continue;
    const RankState& state = ranks_[rank];
    if (state.waiting.what != Wait::kNothing) {
      waits.push_back(Describe(rank, StreamKind::kCompute, state.waiting));
    }
    if (state.job_waiting.what != Wait::kNothing) {
      waits.push_back(Describe(rank, StreamKind::kCommunication, state.job_waiting));
    }
  }
  return waits;
}

std::vector<int32_t> StepLoop::StoppedRanks() const {
  std::vector<int32_t> stopped;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (HasStopped(static_cast<int32_t>(rank)) && !ranks_[rank].ended) {
      stopped.push_back(static_cast<int32_t>(rank));
    }
  }
  return stopped;
}

std::string StepLoop::CauseText(const SimulatedWait& wait,
                                const std::vector<SimulatedWait>& waits) const {
  std::string text;
  const SimulatedWait* next = &wait;
  std::vector<int32_t> seen = {wait.rank};
  for (size_t hop = 0; hop < kWaitsInText && next != nullptr && !next->on_ranks.empty(); ++hop) {
    const int32_t peer = next->on_ranks.front();
    if (HasStopped(peer)) return absl::StrCat(text, "; rank ", peer, " has stopped");
    if (std::find(seen.begin(), seen.end(), peer) != seen.end()) break;
    seen.push_back(peer);
    next = nullptr;
    for (const SimulatedWait& other : waits) {
      if (other.rank != peer || other.on_ranks.empty()) continue;
      absl::StrAppend(&text, "; rank ", peer, " waited for ", WaitText(other));
      next = &other;
      break;
    }
  }
  return text;
}

SimulatedStall StepLoop::MakeStall() const {
  SimulatedStall stall;
  stall.waits = AllWaits();
  stall.stopped = StoppedRanks();
  if (expired_.has_value()) stall.waits.push_back(*expired_);
  const SimulatedWait* first = nullptr;
  for (const SimulatedWait& wait : stall.waits) {
    // Who waits for its own stream has no deadline: that stream has.
    if (wait.on_ranks.empty()) continue;
    if (first == nullptr || wait.since < first->since) first = &wait;
  }
  if (first == nullptr) {
    const int32_t rank = stall.stopped.front();
    stall.at_seconds = ranks_[rank].stops;
    stall.first.rank = rank;
    stall.first.step = ranks_[rank].step;
    stall.first.since = ranks_[rank].stops;
    stall.text = absl::StrCat("rank ", rank, " has stopped in step ", ranks_[rank].step);
    return stall;
  }
  stall.first = *first;
  const double timeout = options_.stall_timeout_seconds;
  stall.at_seconds = timeout > 0 ? first->since + timeout : now_;
  stall.text = absl::StrCat("rank ", first->rank, " waited ",
                            timeout > 0 ? SecondsText(timeout) : "for ever", " for ",
                            WaitText(*first), CauseText(*first, stall.waits));
  return stall;
}

absl::Status StepLoop::Deadlock() const {
  const std::vector<SimulatedWait> waits = AllWaits();
  std::string text = "deadlock: ";
  for (size_t i = 0; i < waits.size() && i < kWaitsInText; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", "rank ", waits[i].rank, " waits for ever for ",
                    WaitText(waits[i]));
  }
  if (waits.size() > kWaitsInText) {
    absl::StrAppend(&text, "; and ", waits.size() - kWaitsInText, " more");
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace weft
