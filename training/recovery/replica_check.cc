#include "training/recovery/replica_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The part of the steps' time that checks take, where they choose their steps. Waiting for each
// other costs about as much again.
constexpr double kShareOfTime = 0.005;
constexpr double kSecondsBetween = 0.5;
// The first check, before anything was measured; an interval has at most so many times the steps of
// the one before.
constexpr int64_t kFirstInterval = 10;
constexpr int64_t kIntervalGrowth = 8;
// Half a second of the shortest steps; a clock that stands still leads here.
constexpr int64_t kLongestInterval = 1'000'000;
// So many variables are named.
constexpr size_t kMaxNamed = 3;

// "'a', 'b', 'c' and 4 more".
std::string NamesOf(const std::vector<std::string>& variables) {
  const size_t named = std::min(variables.size(), kMaxNamed);
  std::string text = absl::StrCat(
      "'", absl::StrJoin(variables.begin(), variables.begin() + static_cast<long>(named), "', '"),
      "'");
  if (variables.size() > named) absl::StrAppend(&text, " and ", variables.size() - named, " more");
  return text;
}

std::vector<int> WrongRanks(const std::vector<DivergedCopies>& diverged) {
  std::set<int> ranks;
  for (const DivergedCopies& one : diverged) ranks.insert(one.wrong.begin(), one.wrong.end());
  return {ranks.begin(), ranks.end()};
}

bool HaveMajorities(const std::vector<DivergedCopies>& diverged) {
  return std::all_of(diverged.begin(), diverged.end(),
                     [](const DivergedCopies& one) { return one.right >= 0; });
}

std::vector<std::string> NamesOf(const Coordinator& coordinator, const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(coordinator.name(rank));
  return names;
}

// Those of `copies` that have diverged.
std::vector<VariableCopies> SuspectsOf(const std::vector<VariableCopies>& copies,
                                       const std::vector<DivergedCopies>& diverged) {
  std::set<std::string> names;
  for (const DivergedCopies& one : diverged) names.insert(one.variable);
  std::vector<VariableCopies> suspects;
  for (const VariableCopies& one : copies) {
    if (names.contains(one.variable)) suspects.push_back(one);
  }
  return suspects;
}

Divergence DivergenceOf(const Coordinator& coordinator, int64_t step, int64_t since,
                        const std::vector<DivergedCopies>& diverged) {
  Divergence divergence;
  divergence.step = step;
  divergence.since = since;
  divergence.workers = NamesOf(coordinator, WrongRanks(diverged));
  std::set<std::string> variables;
  for (const DivergedCopies& one : diverged) variables.insert(one.variable);
  divergence.variables.assign(variables.begin(), variables.end());
  return divergence;
}

}  // namespace

ReplicaCheck::ReplicaCheck(const PreparedJob& job, int64_t first_step, ReplicaCheckOptions options)
    : job_(job),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : RealClock()),
      last_step_(first_step),
      last_nanos_(clock_.MonotonicNanos()),
      next_(first_step + kFirstInterval),
      interval_(kFirstInterval) {
  summary_.last_equal = first_step;
}

int64_t ReplicaCheck::NextCall(int64_t step) const {
  // One replica has nobody to be compared with, until there are more.
  if (has_copies_ && copies_.empty() && mesh_ == job_.plan.mesh) {
    return std::numeric_limits<int64_t>::max();
  }
  if (!repaired_.empty()) return step + 1;
  if (options_.every > 0) return (step / options_.every + 1) * options_.every;
  return std::max(next_, step + 1);
}

absl::StatusOr<std::string> ReplicaCheck::Call(Coordinator& coordinator, int64_t step) {
  const int64_t begin = clock_.MonotonicNanos();
  const int64_t steps = step - last_step_;
  const double seconds = static_cast<double>(begin - last_nanos_) * 1e-9;
  WEFT_RETURN_IF_ERROR(Check(coordinator, step));
  last_nanos_ = clock_.MonotonicNanos();
  last_step_ = step;
  const double pause = static_cast<double>(last_nanos_ - begin) * 1e-9;
  summary_.seconds += pause;
  Schedule(step, steps, seconds, pause);
  return std::string();
}

absl::Status ReplicaCheck::AtEnd(Coordinator& coordinator, int64_t step) {
  return last_step_ == step ? absl::OkStatus() : Call(coordinator, step).status();
}

void ReplicaCheck::Schedule(int64_t step, int64_t steps, double seconds, double pause) {
  const double one = seconds / static_cast<double>(std::max<int64_t>(steps, 1));
  // What lies between some steps, such as an evaluation, is none of their time.
  const double shortest = step_seconds_ > 0 ? std::min(step_seconds_, one) : one;
  step_seconds_ = one;
  pause_ = pause_ > 0 ? (pause_ + pause) / 2 : pause;
  const auto longest = static_cast<double>(std::min(kIntervalGrowth * interval_, kLongestInterval));
  const double wanted =
      shortest > 0 ? std::max(pause_ / kShareOfTime, kSecondsBetween) / shortest : longest;
  interval_ = static_cast<int64_t>(std::ceil(std::clamp(wanted, 1.0, longest)));
  next_ = step + interval_;
}

void ReplicaCheck::FindCopiesOf(const Coordinator& coordinator) {
  if (has_copies_ && mesh_ == job_.plan.mesh) return;
  std::set<std::string> variables;
  for (const Graph* const graph : job_.graphs()) {
    for (const Variable& variable : graph->variables()) variables.insert(variable.name);
  }
  mesh_ = job_.plan.mesh;
  copies_ = FindCopies(coordinator, mesh_, variables);
  has_copies_ = true;
  summary_.variables = static_cast<int64_t>(copies_.size());
}

absl::Status ReplicaCheck::Check(Coordinator& coordinator, int64_t step) {
  FindCopiesOf(coordinator);
  if (copies_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const CopyDigests answers, DigestCopies(coordinator, copies_));
  ++summary_.checks;
  const std::vector<DivergedCopies> found = CompareCopies(copies_, answers);
  if (!found.empty()) {
    // The memory, or a reading of it?
    const std::vector<VariableCopies> suspects = SuspectsOf(copies_, found);
    WEFT_ASSIGN_OR_RETURN(const CopyDigests again, DigestCopies(coordinator, suspects));
    const std::vector<DivergedCopies> diverged = CompareCopies(suspects, again);
    if (!diverged.empty()) return Handle(coordinator, step, suspects, diverged);
    Divergence divergence = DivergenceOf(coordinator, step, summary_.last_equal, found);
    divergence.action = "read again";
    options_.say(absl::StrCat(Describe(coordinator, divergence, found),
                              "; read again they are equal: an error of reading that has passed"));
    divergence.fault = "passing";
    summary_.divergences.push_back(std::move(divergence));
  }
  TellPassed(coordinator, step, {});
  summary_.last_equal = step;
  return absl::OkStatus();
}

void ReplicaCheck::TellPassed(const Coordinator& coordinator, int64_t step,
                              const std::vector<int>& wrong) {
  for (const int rank : wrong) repaired_.erase(coordinator.clients()[static_cast<size_t>(rank)]);
  std::vector<std::string> passed;
  for (int rank = 0; rank < coordinator.size(); ++rank) {
    if (!repaired_.contains(coordinator.clients()[static_cast<size_t>(rank)])) continue;
    passed.push_back(coordinator.name(rank));
  }
  repaired_.clear();
  if (passed.empty()) return;
  for (Divergence& one : summary_.divergences) {
    if (one.action == "repaired" && one.fault.empty()) one.fault = "passing";
  }
  options_.say(absl::StrCat(absl::StrJoin(passed, " and "), passed.size() > 1 ? " have" : " has",
                            " equal bits after step ", step,
                            ", the first since the repair: the fault has passed"));
}

std::string ReplicaCheck::Describe(const Coordinator& coordinator, const Divergence& divergence,
                                   const std::vector<DivergedCopies>& diverged) const {
  const bool known = HaveMajorities(diverged);
  const std::string variables = NamesOf(divergence.variables);
  std::string text = absl::StrJoin(divergence.workers, " and ");
  if (known) {
    absl::StrAppend(&text, divergence.workers.size() > 1 ? " have" : " has", " other bits in ",
                    variables, " than most replicas, such as ",
                    coordinator.name(diverged.front().right), ",");
  } else {
    absl::StrAppend(&text, " have different bits in ", variables);
  }
  return absl::StrCat(text, " after step ", divergence.step, ", and had equal ones after step ",
                      divergence.since);
}

absl::Status ReplicaCheck::End(Divergence divergence, const std::string& text) {
  divergence.action = "stopped";
  summary_.divergences.push_back(std::move(divergence));
  summary_.has_ended = true;
  return absl::DataLossError(text);
}

absl::Status ReplicaCheck::LeaveOutOrEnd(Divergence divergence, const std::vector<int>& ranks,
                                         const std::string& text) {
  if (options_.leave_out == nullptr) {
    return End(std::move(divergence),
               absl::StrCat(text, "; the job cannot go on without it: take the machine out"));
  }
  for (const int rank : ranks) options_.leave_out(rank);
  divergence.action = "left out";
  summary_.divergences.push_back(std::move(divergence));
  return absl::UnavailableError(absl::StrCat(text, ", so take the machine out"));
}

absl::StatusOr<std::vector<DivergedCopies>> ReplicaCheck::Repair(
    Coordinator& coordinator, const std::vector<VariableCopies>& suspects,
    const std::vector<DivergedCopies>& diverged) {
  const std::vector<WorkerClient*>& workers = coordinator.clients();
  for (const DivergedCopies& one : diverged) {
    auto copy = workers[static_cast<size_t>(one.right)]->ReadVariable(one.variable);
    if (!copy.ok()) return Annotate(copy.status(), coordinator.name(one.right));
    for (const int rank : one.wrong) {
      const absl::Status written =
          workers[static_cast<size_t>(rank)]->WriteVariable(one.variable, *copy);
      if (!written.ok()) return Annotate(written, coordinator.name(rank));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const CopyDigests repaired, DigestCopies(coordinator, suspects));
  return CompareCopies(suspects, repaired);
}

absl::Status ReplicaCheck::Handle(Coordinator& coordinator, int64_t step,
                                  const std::vector<VariableCopies>& suspects,
                                  const std::vector<DivergedCopies>& diverged) {
  Divergence divergence = DivergenceOf(coordinator, step, summary_.last_equal, diverged);
  const std::string text = Describe(coordinator, divergence, diverged);
  Log(LogLevel::kWarning, text);
  if (options_.on_divergence == OnDivergence::kIgnore) {
    const std::string key =
        absl::StrCat(absl::StrJoin(divergence.workers, " "), NamesOf(divergence.variables));
    if (std::exchange(told_, key) != key) options_.say(absl::StrCat(text, "; the run goes on"));
    divergence.action = "ignored";
    summary_.divergences.push_back(std::move(divergence));
    return absl::OkStatus();
  }
  if (options_.on_divergence == OnDivergence::kStop) {
    return End(std::move(divergence), absl::StrCat(text, "; the run has ended for that"));
  }
  if (!HaveMajorities(diverged)) {
    return End(std::move(divergence),
               absl::StrCat(text, "; no majority says which is right, so the run has ended"));
  }
  std::vector<int> lasting;
  bool at_once = false;
  for (const int rank : WrongRanks(diverged)) {
    const WorkerClient* const worker = coordinator.clients()[static_cast<size_t>(rank)];
    if (++faults_[worker] < 2) continue;
    lasting.push_back(rank);
    at_once = at_once || repaired_.contains(worker);
  }
  TellPassed(coordinator, step, WrongRanks(diverged));
  if (!lasting.empty()) {
    divergence.fault = "lasting";
    if (at_once) summary_.divergences.back().fault = "lasting";
    return LeaveOutOrEnd(
        std::move(divergence), lasting,
        absl::StrCat(text, ", for the second time", at_once ? ", in the step after its repair" : "",
                     ": a lasting fault"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<DivergedCopies> left,
                        Repair(coordinator, suspects, diverged));
  if (!left.empty()) {
    divergence.fault = "lasting";
    return LeaveOutOrEnd(
        std::move(divergence), WrongRanks(left),
        absl::StrCat(text, ", also after it was given the majority's: a lasting fault"));
  }
  options_.say(absl::StrCat(text,
                            "; it was given the majority's copy. Steps in between may have "
                            "used wrong bits"));
  divergence.action = "repaired";
  for (const int rank : WrongRanks(diverged)) {
    repaired_.insert(coordinator.clients()[static_cast<size_t>(rank)]);
  }
  summary_.divergences.push_back(std::move(divergence));
  summary_.last_equal = step;
  return absl::OkStatus();
}

}  // namespace weft
