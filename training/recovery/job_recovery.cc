#include "training/recovery/job_recovery.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/coordinator_epoch.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/job/stored_programs.h"

namespace weft {
namespace {

// Of `size` ranks, those that are not in `left`, which is in ascending order.
std::vector<int> Others(int size, const std::vector<int>& left) {
  std::vector<int> others;
  for (int rank = 0; rank < size; ++rank) {
    if (!std::binary_search(left.begin(), left.end(), rank)) others.push_back(rank);
  }
  return others;
}

// Those that answer, where they are not at one step; of the newest run the most steps that one of
// them has done, and the reports of these.
SettledStep FindLeft(const std::vector<WorkerClient*>& clients, int64_t runs, int64_t reported) {
  SettledStep found;
  int first = -1;  // of those that have done most
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto progress = clients[i]->Ask(StepProgressRequest{});
    const absl::Status& answer = progress.status();
    if (absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer)) continue;
    found.left.push_back(static_cast<int>(i));
    const bool is_ahead = progress.ok() && progress->runs == runs && progress->steps > found.steps;
    if (!is_ahead) continue;
    found.steps = progress->steps;
    first = static_cast<int>(i);
  }
  if (found.steps <= reported) return found;
  auto reports = clients[static_cast<size_t>(first)]->Ask(StepReportsRequest{.first = reported});
  if (reports.ok()) found.reports = *std::move(reports);
  return found;
}

// The error, with those of these workers that are lost meanwhile.
absl::Status WithLost(const absl::Status& error, const std::vector<WorkerClient*>& clients) {
  std::vector<std::string> lost;
  for (WorkerClient* const client : clients) {
    const absl::Status answer = client->Ask(StepProgressRequest{}).status();
    if (absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer)) {
      lost.push_back(client->name());
    }
  }
  if (lost.empty()) return error;
  return absl::Status(error.code(), absl::StrCat(std::string(error.message()),
                                                 "; lost meanwhile: ", absl::StrJoin(lost, ", ")));
}

// They hold what they have, as far as they can.
void HoldAll(const std::vector<WorkerClient*>& clients, const std::vector<int>& whom,
             int64_t step) {
  for (const int i : whom) {
    const absl::Status held =
        clients[static_cast<size_t>(i)]->Ask(HoldStateRequest{.step = step}).status();
    if (!held.ok()) Log(LogLevel::kWarning, "a state is not held: ", held.ToString());
  }
}

// "worker:1 (pid 4711) was killed by signal 9 (Killed)", without who waited for it. Where it is
// told by one that has lost it, behind the name of one that is out: "worker:1 (10.0.0.8:4000):
// ...".
std::string CauseOf(const absl::Status& loss, const std::vector<std::string>& out) {
  const std::string cause = CauseText(loss);
  for (const std::string& name : out) {
    const std::string worker = name.substr(0, name.find(' '));  // "worker:1"
    if (absl::StartsWith(cause, absl::StrCat(worker, " "))) return cause;
    if (absl::StartsWith(cause, absl::StrCat(worker, ":"))) return cause;
  }
  return absl::StrCat(absl::StrJoin(out, ", "), ": ", cause);
}

}  // namespace

std::string CauseText(const absl::Status& loss) {
  const std::string text(loss.message());
  size_t end = text.size();
  for (const char* const consequence :
       {"; worker:", "; rank ", "; under way was ", "; the job was aborted"}) {
    end = std::min(end, text.find(consequence));
  }
  return text.substr(0, end);
}

std::string PartsText(const RecoveryRecord& record) {
  const ChangeTimes& times = record.times;
  std::string text = absl::StrFormat("settled %.2f s", record.settle_seconds);
  if (times.wait >= 0.005) absl::StrAppendFormat(&text, ", waited %.2f s", times.wait);
  absl::StrAppendFormat(&text, ", plan %.2f s%s, joined %.2f s, programs %.2f s, state %.2f s",
                        times.plan, times.prepared ? " (prepared)" : "", times.join, times.programs,
                        times.state);
  return text;
}

double JobRecovery::SecondsSince(int64_t nanos) const {
  Clock& clock = options_.clock != nullptr ? *options_.clock : RealClock();
  return static_cast<double>(clock.MonotonicNanos() - nanos) * 1e-9;
}

std::string JobRecovery::WhyNot(const PreparedJob& job, const JobSpec& spec, bool may_grow) {
  if (job.plan.mesh.data < 2 && !may_grow) {
    return absl::StrCat("under ", job.plan.mesh.ToString(), " no worker has what another has");
  }
  if (job.plan.zero > 0) {
    return absl::StrCat("with zero=", job.plan.zero, " each worker has state that no other has");
  }
  const std::string kind = WhyNotFromState(job, spec, may_grow);
  if (!kind.empty()) return kind;
  for (const JobProgram& program : job.programs) {
    // One replica has nobody to agree with. What further ones would need, JobMembers looks at.
    const bool commits = job.plan.mesh.data < 2 ||
                         std::all_of(program.partitions.begin(), program.partitions.end(),
                                     [](const Partition& partition) { return partition.commits; });
    if (!commits) return "its workers need each other while they update variables";
  }
  return "";
}

std::string JobRecovery::WhyNotFromState(const PreparedJob& job, const JobSpec& spec,
                                         bool may_grow) {
  if (job.plan.mesh.size() < 2 && !may_grow) return "it has one worker alone";
  if (!job.updates.empty()) return "a job of several updates in turn cannot be planned anew yet";
  if (spec.stored != nullptr) {
    return absl::StrCat("the partitions in '", spec.stored->folder, "' are for all its workers");
  }
  for (const JobProgram& program : job.programs) {
    if (absl::StartsWith(program.name, absl::StrCat(kTrainingSteps, "/"))) continue;
    return absl::StrCat("its steps also run '", program.name, "', which is planned once");
  }
  return "";
}

absl::StatusOr<WentOn> JobRecovery::GoOn(Coordinator& coordinator, const absl::Status& loss,
                                         int64_t before, int64_t reported) {
  Clock& clock = options_.clock != nullptr ? *options_.clock : RealClock();
  const int64_t begin = clock.MonotonicNanos();
  const absl::Status known = options_.explain == nullptr ? loss : options_.explain(loss);
  Log(LogLevel::kWarning, "a worker may be lost: ", known.ToString());
  if (IsDeposed(known)) return known;  // this process is, and no worker
  const int workers = coordinator.size();
  std::vector<std::string> names;
  for (int rank = 0; rank < workers; ++rank) names.push_back(coordinator.name(rank));
  Outcome outcome;
  const absl::Status went_on = GoOnOnce(coordinator, before, reported, outcome);
  if (!went_on.ok()) {
    return absl::UnavailableError(
        absl::StrCat(std::string(known.message()),
                     "; the job cannot go on without it: ", std::string(went_on.message())));
  }
  if (outcome.out.empty()) return loss;  // all workers answer: a peer's error ended the run
  losses_ += static_cast<int64_t>(outcome.out.size());
  RecoveryRecord record;
  for (const int rank : outcome.out) record.lost.push_back(names[static_cast<size_t>(rank)]);
  record.come = members_.come();
  record.before = workers;
  record.after = coordinator.size();
  record.seconds = SecondsSince(begin);
  record.settle_seconds = outcome.settle_seconds;
  record.times = members_.times();
  const std::string come =
      record.come.empty()
          ? ""
          : absl::StrCat(" with ", absl::StrJoin(record.come, ", "), " in its place");
  std::string from, cost = "no step is lost or repeated";
  if (outcome.went_on.back_to.has_value()) {
    const int64_t back_to = *outcome.went_on.back_to;
    const int64_t done = before + std::max(reported, outcome.went_on.settled.steps);
    from = absl::StrCat(" from ", outcome.source, ", step ", back_to);
    const int64_t again = std::max<int64_t>(0, done - back_to);
    cost = absl::StrCat(again == 1 ? "1 step is" : absl::StrCat(again, " steps are"),
                        " done again, no sample is lost or repeated");
  }
  options_.say(absl::StrFormat("lost   %s; %d of %d workers go on as %s%s%s after %.2f s: %s (%s)",
                               WhyOut(known, record.lost), coordinator.size(), workers,
                               job_.plan.mesh.ToString(), come, from, record.seconds, cost,
                               PartsText(record)));
  records_.push_back(std::move(record));
  return outcome.went_on;
}

absl::Status JobRecovery::GoOnOnce(Coordinator& coordinator, int64_t before, int64_t reported,
                                   Outcome& outcome) {
  const std::vector<WorkerClient*> clients = coordinator.clients();
  Clock& clock = options_.clock != nullptr ? *options_.clock : RealClock();
  const int64_t begin = clock.MonotonicNanos();
  const int64_t runs = coordinator.runs();
  const auto settled = SettleStep(clients, runs, reported);
  SettledStep& stand = outcome.went_on.settled;
  stand = settled.ok() ? *settled : FindLeft(clients, runs, reported);
  outcome.settle_seconds = SecondsSince(begin);
  LeaveOutWhoIsApart(coordinator, stand.left);
  const std::set<int> left_out = std::exchange(left_out_, {});
  std::erase_if(stand.left, [&](int rank) { return left_out.contains(rank); });
  outcome.out = Others(coordinator.size(), stand.left);
  if (outcome.out.empty()) return absl::OkStatus();
  if (stand.left.empty()) return absl::UnavailableError("all workers of the job are lost");
  has_arrivals_ = false;
  // What workers have is of use where all that are left stand at one step.
  const bool is_settled = options_.commits && settled.ok();
  const bool may_fill = options_.wait > absl::ZeroDuration() || !members_.waiting().empty();
  const bool may_change = is_settled && (may_fill || members_.CanSpare(coordinator, outcome.out));
  members_.Lose(coordinator, outcome.out);
  absl::Status changed = settled.status();
  if (may_change) {
    changed = members_.Change(coordinator);
    if (changed.ok()) return changed;
    Log(LogLevel::kWarning, "replicas that are whole cannot go on: ", changed.ToString());
  }
  // Parts of several replicas may make it up.
  if (is_settled) HoldAll(clients, stand.left, before + stand.steps);
  const auto rebuilt = members_.Rebuild(coordinator, is_settled || options_.replicate_every > 0);
  if (rebuilt.ok()) {
    outcome.went_on.back_to = rebuilt->step;
    outcome.source = rebuilt->source;
    return absl::OkStatus();
  }
  if (changed.ok()) return rebuilt.status();
  return absl::Status(rebuilt.status().code(),
                      absl::StrCat(std::string(changed.message()), "; and ",
                                   std::string(rebuilt.status().message())));
}

void JobRecovery::LeaveOutWhoIsApart(const Coordinator& coordinator, const std::vector<int>& left) {
  are_apart_ = false;
  if (static_cast<int>(left.size()) == coordinator.size() && left_out_.empty()) {
    left_out_ = pairs_.Choose(coordinator.lost_peers(),
                              [&](int rank) { return members_.PlaceNow(coordinator, rank); });
    are_apart_ = !left_out_.empty();
  }
  members_.Refuse(coordinator, left_out_);
}

std::string JobRecovery::WhyOut(const absl::Status& loss,
                                const std::vector<std::string>& out) const {
  if (!are_apart_) return CauseOf(loss, out);
  return absl::StrCat(
      absl::StrJoin(out, ", "),
      ": left out, as it and another have lost each other, though both answer: ", CauseText(loss));
}

bool JobRecovery::wants_change(const Coordinator& coordinator) {
  has_arrivals_ = members_.TakeArrivals(coordinator) || has_arrivals_;
  return has_arrivals_ || coordinator.has_leaving();
}

absl::Status JobRecovery::RebuildFromNow(Coordinator& coordinator, int64_t step,
                                         const std::vector<int>& leaving,
                                         const std::vector<WorkerClient*>& givers) {
  // It is the newest state then, and whole.
  WEFT_RETURN_IF_ERROR(coordinator.AskAll(HoldStateRequest{.step = step}).status());
  members_.Leave(coordinator, leaving);
  WEFT_ASSIGN_OR_RETURN(const JobMembers::Rebuilt rebuilt,
                        members_.Rebuild(coordinator, /*asks_workers=*/true, givers));
  if (rebuilt.step == step) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the job stands after step ", step, ", and its state is ",
                                          rebuilt.source, " after step ", rebuilt.step));
}

absl::StatusOr<bool> JobRecovery::ChangeMembers(Coordinator& coordinator, int64_t step) {
  Clock& clock = options_.clock != nullptr ? *options_.clock : RealClock();
  const int64_t begin = clock.MonotonicNanos();
  const std::vector<WorkerClient*> clients = coordinator.clients();
  const int before = coordinator.size();
  std::vector<int> leaving;
  std::vector<WorkerClient*> left;
  std::vector<std::string> names;
  for (int rank = 0; rank < before; ++rank) {
    WorkerClient* const client = clients[static_cast<size_t>(rank)];
    if (!client->is_leaving()) continue;
    leaving.push_back(rank);
    left.push_back(client);
    names.push_back(client->name());
  }
  const bool may_keep = options_.commits && members_.CanSpare(coordinator, leaving);
  const bool may_begin_again =
      options_.replicate_every > 0 && members_.CanBeginAgainWithout(coordinator, leaving);
  if (!may_keep && !may_begin_again) return false;
  if (may_keep) {
    members_.Leave(coordinator, leaving);
    WEFT_RETURN_IF_ERROR(members_.Change(coordinator));
  } else {
    const absl::Status rebuilt = RebuildFromNow(coordinator, step, leaving, left);
    if (!rebuilt.ok()) return WithLost(rebuilt, clients);
  }
  has_arrivals_ = false;
  if (!left.empty() && options_.on_left != nullptr) options_.on_left(left);
  const double seconds = SecondsSince(begin);
  std::string who;
  if (!left.empty()) who = absl::StrCat("left   ", absl::StrJoin(names, ", "), " on purpose; ");
  if (!members_.come().empty()) {
    absl::StrAppend(&who, left.empty() ? "joined " : "", absl::StrJoin(members_.come(), ", "),
                    left.empty() ? "; " : " has come; ");
  }
  if (who.empty()) return true;  // who has come could not be used
  options_.say(
      absl::StrFormat("%s%d workers instead of %d go on as %s from step %d on, after %.2f s", who,
                      coordinator.size(), before, job_.plan.mesh.ToString(), step + 1, seconds));
  return true;
}

}  // namespace weft
