#include "training/recovery/job_members.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/state_handover.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "training/job/replication.h"
#include "training/job/resume.h"
#include "training/recovery/held_source.h"
#include "training/recovery/initial_source.h"

namespace weft {
namespace {

// How often a wait looks whether it shall end.
constexpr absl::Duration kLook = absl::Milliseconds(200);

bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

JobMembers::JobMembers(PreparedJob& job, const JobRecoveryOptions& options)
    : job_(job),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : RealClock()),
      membership_(job.plan) {
  for (int place = 0; place < membership_.size(); ++place) {
    const size_t index = static_cast<size_t>(place);
    const size_t worker = index < job.plan.workers.size()
                              ? static_cast<size_t>(job.plan.workers[index])
                              : job.cluster.workers.size();
    devices_.push_back(worker < job.cluster.workers.size()
                           ? DeviceName(job.cluster.workers[worker].device,
                                        job.cluster.workers[worker].device_index)
                           : "");
  }
  begun_ = clock_.Now();
  if (options_.prepares_after < absl::InfiniteDuration()) {
    prepared_.emplace(options_.repartition);
  }
}

void JobMembers::Begin(const Coordinator& coordinator) {
  if (!places_.empty()) return;
  places_ = coordinator.members();
  for (int rank = 0; rank < coordinator.size(); ++rank) {
    ranks_.push_back(rank);
    wanted_as_.push_back(rank);
  }
}

double JobMembers::Lap() {
  const int64_t now = clock_.MonotonicNanos();
  const double seconds = static_cast<double>(now - mark_) * 1e-9;
  mark_ = now;
  return seconds;
}

void JobMembers::PrepareInTime(const Coordinator& coordinator) {
  if (!prepared_.has_value() || is_preparing_) return;
  if (clock_.Now() - begun_ < options_.prepares_after) return;
  Begin(coordinator);
  is_preparing_ = true;
  Prepare();
}

void JobMembers::Prepare() {
  if (!is_preparing_) return;
  std::vector<Plan> plans;
  for (const int place : ranks_) {
    Membership without = membership_;
    without.Lose(place, without.incarnation(place));
    if (const auto next = without.Next(); options_.commits && next.ok()) {
      plans.push_back(next->plan);
      continue;
    }
    // What Rebuild would come to, where there may be a state for it.
    if (options_.replicate_every == 0 && options_.checkpoint == nullptr) continue;
    std::vector<int> left;
    for (const auto& [rank, other] : without.PlacesByRank()) left.push_back(rank);
    if (left.empty()) continue;
    if (const auto fewer = PlanForFewer(without.wide_plan(), left); fewer.ok()) {
      plans.push_back(fewer->plan);
    }
  }
  prepared_->Expect(plans);
}

absl::StatusOr<std::vector<JobProgram>> JobMembers::ProgramsFor(const Plan& plan) {
  absl::StatusOr<std::vector<JobProgram>> programs = absl::NotFoundError("not made before");
  if (prepared_.has_value()) {
    if (auto made = prepared_->Take(plan); made.has_value()) {
      times_.prepared = true;
      programs = *std::move(made);
    }
  }
  if (!programs.ok()) programs = options_.repartition(plan);
  if (!programs.ok() || plan.mesh.data == 1 || !options_.commits) return programs;
  // A job of one replica did not need that.
  for (const JobProgram& program : *programs) {
    for (const Partition& partition : program.partitions) {
      if (partition.commits || !plan.commits) continue;
      return absl::FailedPreconditionError(
          "with further replicas, its workers would need each other while they update variables");
    }
  }
  return programs;
}

void JobMembers::LosePlaces(const std::vector<int>& places) {
  std::vector<WorkerClient*> gone;
  for (const int place : places) {
    if (!membership_.Lose(place, membership_.incarnation(place))) continue;
    gone.push_back(At(place).client);
    unasked_.erase(At(place).client);
  }
  if (!gone.empty() && options_.on_lost != nullptr) options_.on_lost(gone);
}

void JobMembers::Lose(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  std::vector<int> places;
  for (const int rank : ranks) places.push_back(PlaceOf(rank));
  LosePlaces(places);
}

void JobMembers::Leave(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  for (const int rank : ranks) {
    membership_.Lose(PlaceOf(rank), membership_.incarnation(PlaceOf(rank)));
    unasked_.erase(At(PlaceOf(rank)).client);
  }
}

void JobMembers::Refuse(const Coordinator& coordinator, const std::set<int>& ranks) {
  Begin(coordinator);
  for (const int rank : ranks) refused_.insert(PlaceOf(rank));
}

bool JobMembers::CanSpare(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  Membership without = membership_;
  for (const int rank : ranks) {
    without.Lose(PlaceOf(rank), without.incarnation(PlaceOf(rank)));
  }
  return without.Next().ok();
}

bool JobMembers::CanBeginAgainWithout(const Coordinator& coordinator,
                                      const std::vector<int>& ranks) {
  Begin(coordinator);
  Membership without = membership_;
  for (const int rank : ranks) {
    without.Lose(PlaceOf(rank), without.incarnation(PlaceOf(rank)));
  }
  std::vector<int> taken;
  for (const auto& [rank, place] : without.PlacesByRank()) taken.push_back(rank);
  return PlanForFewer(without.wide_plan(), taken).ok();
}

void JobMembers::Put(int place, const Arrival& arrival) {
  JobMember& member = At(place);
  member.client = arrival.client;
  member.address = arrival.address;
  Log(LogLevel::kInfo, arrival.client->name(), " has come for place ", place);
}

void JobMembers::Place(const Coordinator& coordinator, const Arrival& arrival) {
  if (arrival.place != kAnyPlace) {
    const auto found = std::find(wanted_as_.begin(), wanted_as_.end(), arrival.place);
    if (found == wanted_as_.end()) {
      // Of a plan before this one: nobody needs it any more.
      if (options_.on_lost != nullptr) options_.on_lost({arrival.client});
      return;
    }
    const int place = static_cast<int>(found - wanted_as_.begin());
    // Somebody else may have taken it meanwhile.
    if (membership_.Come(place) != 0) return Put(place, arrival);
    return waiting_.Add({kAnyPlace, arrival.client, arrival.address, DeviceAt(place)});
  }
  JobMember newcomer = {arrival.client, arrival.address};
  newcomer.device = arrival.device;
  if (const absl::Status fits = coordinator.CheckNewcomer(newcomer); !fits.ok()) {
    options_.say(absl::StrCat("warning: a worker that has come cannot be used: ",
                              std::string(fits.message())));
    options_.source->Refuse(*arrival.client, fits);
    return;
  }
  waiting_.Add(arrival);
}

void JobMembers::LetGo() {
  for (const Arrival& gone : waiting_.TakeGone()) {
    const bool leaves = gone.client->is_leaving() && !gone.client->is_lost();
    options_.say(absl::StrCat(leaves ? "left   " : "lost   ", gone.client->name(),
                              ", which was waiting for a place"));
    const auto& told = leaves ? options_.on_left : options_.on_lost;
    if (told != nullptr) told({gone.client});
  }
}

void JobMembers::PlaceWaiting() {
  if (waiting_.empty()) return;
  const int before = membership_.size();
  const std::vector<WaitingWorkers::Placed> placed = waiting_.FillPlaces(membership_, devices_);
  for (int place = before; place < membership_.size(); ++place) {
    places_.emplace_back();
    wanted_as_.push_back(kAnyPlace);
    devices_.push_back(devices_[static_cast<size_t>(membership_.PeerOf(place))]);
  }
  for (const auto& [place, arrival] : placed) {
    Put(place, arrival);
    // It has said what it is; a place of the plan may have been another of that kind.
    if (!arrival.device.empty()) At(place).device = arrival.device;
    unasked_.insert(arrival.client);
  }
}

std::string JobMembers::WaitText(const Arrival& arrival) const {
  std::string text =
      absl::StrCat("spare  ", arrival.client->name(), " waits for the place of a lost worker");
  if (!arrival.may_add) return text;
  if (!membership_.has_room()) {
    return absl::StrCat(text, ": the job has one micro-batch for each of its replicas, ",
                        job_.plan.micro_batches, "; --micro-batches makes room for more");
  }
  const int needed = job_.plan.mesh.tensor * job_.plan.mesh.pipeline;
  return needed == 1
             ? text
             : absl::StrCat(text, ", or until there are ", needed, ", for one more replica");
}

bool JobMembers::TakeArrivals(const Coordinator& coordinator) {
  PrepareInTime(coordinator);
  if (options_.source == nullptr) return false;
  const std::vector<Arrival> arrivals = options_.source->Take(absl::InfinitePast());
  if (!arrivals.empty()) Begin(coordinator);
  if (places_.empty()) return false;
  for (const Arrival& arrival : arrivals) Place(coordinator, arrival);
  LetGo();
  PlaceWaiting();
  for (const Arrival& arrival : arrivals) {
    const bool waits =
        std::any_of(waiting_.all().begin(), waiting_.all().end(),
                    [&](const Arrival& one) { return one.client == arrival.client; });
    if (waits) options_.say(WaitText(arrival));
  }
  const auto next = membership_.Next();
  if (!next.ok() || next->places == ranks_) return false;
  if (!prepared_.has_value()) return true;
  prepared_->Hurry(next->plan);
  return prepared_->IsSettled(next->plan);
}

void JobMembers::WantVacancies() {
  if (options_.source == nullptr) return;
  for (const int place : membership_.vacancies()) {
    const int wanted_as = wanted_as_[static_cast<size_t>(place)];
    if (wanted_as != kAnyPlace && !refused_.contains(place)) options_.source->Want(wanted_as);
  }
}

bool JobMembers::has_wanted() const {
  const std::vector<int> vacancies = membership_.vacancies();
  return std::any_of(vacancies.begin(), vacancies.end(), [this](int place) {
    return wanted_as_[static_cast<size_t>(place)] != kAnyPlace;
  });
}

void JobMembers::Await(const Coordinator& coordinator) {
  if (options_.source == nullptr) return;
  WantVacancies();
  const absl::Time deadline = clock_.Now() + options_.wait;
  while (has_wanted() && options_.source->is_expected()) {
    if (clock_.Now() >= deadline || (options_.stop != nullptr && options_.stop())) return;
    const absl::Time look = std::min(deadline, clock_.Now() + kLook);
    for (const Arrival& arrival : options_.source->Take(look)) Place(coordinator, arrival);
    PlaceWaiting();
    WantVacancies();  // one that was under way may have failed
  }
}

absl::Status JobMembers::TakeIn(Coordinator& coordinator, const NextMembers& next) {
  Lap();
  times_.prepared = ProgramsKey(next.plan) == ProgramsKey(job_.plan);  // as for a spare
  if (!times_.prepared) {
    WEFT_ASSIGN_OR_RETURN(job_.programs, ProgramsFor(next.plan));
  }
  times_.plan += Lap();
  job_.plan = next.plan;
  job_.planned = {};
  std::vector<JobMember> members;
  for (const int place : next.places) {
    members.push_back(At(place));
    members.back().keeps_state = membership_.has_state(place);
  }
  coordinator.set_replication(ReplicationOf(job_.programs, job_.plan, options_.replicate_every));
  WEFT_RETURN_IF_ERROR(coordinator.GoOnAs(members));
  times_.join += Lap();
  WEFT_RETURN_IF_ERROR(Equip(coordinator));
  times_.programs += Lap();
  WEFT_RETURN_IF_ERROR(HandOverState(coordinator, next.handovers));
  times_.state += Lap();
  if (options_.on_plan != nullptr) options_.on_plan(job_.plan);
  return absl::OkStatus();
}

absl::Status JobMembers::Equip(Coordinator& coordinator) {
  const PreparedJob* evaluation = nullptr;
  if (options_.evaluation != nullptr) {
    WEFT_ASSIGN_OR_RETURN(evaluation, options_.evaluation());
  }
  return AddPrograms(coordinator, job_, evaluation);
}

absl::StatusOr<std::unique_ptr<StateSource>> JobMembers::FindState(
    const std::vector<WorkerClient*>& holders, bool asks_workers) {
  std::unique_ptr<StateSource> found;
  std::string why = "its workers hold no copies of it (--replicate)";
  int64_t newest_held = -1;
  if (asks_workers) {
    absl::StatusOr<HeldSource> held =
        HeldSource::FindNewest(holders, StateNames(job_), /*job_id=*/0, &newest_held);
    if (held.ok()) found = std::make_unique<HeldSource>(*std::move(held));
    if (!held.ok()) why = std::string(held.status().message());
  }
  if (options_.checkpoint != nullptr) {
    const int64_t after = found == nullptr ? -1 : found->step();
    absl::StatusOr<std::unique_ptr<StateSource>> checkpoint = options_.checkpoint(after);
    if (!checkpoint.ok()) {
      options_.say(absl::StrCat("warning: a checkpoint cannot be used: ",
                                std::string(checkpoint.status().message())));
    } else if (*checkpoint != nullptr) {
      found = *std::move(checkpoint);
    }
  }
  // The first copies were under way.
  const bool is_early = options_.replicate_every > 0 && options_.begins_anew && newest_held <= 0;
  if (found == nullptr && is_early) {
    found = std::make_unique<InitialSource>(job_);
  }
  if (found != nullptr) return found;
  return absl::FailedPreconditionError(absl::StrCat("no state of the job is left: ", why, ", and ",
                                                    options_.checkpoint == nullptr
                                                        ? "it has no checkpoints (--checkpoint)"
                                                        : "no checkpoint of it is whole"));
}

absl::Status JobMembers::BeginAgain(Coordinator& coordinator, const SurvivorPlan& next,
                                    StateSource& source) {
  WEFT_ASSIGN_OR_RETURN(job_.programs, ProgramsFor(next.plan));
  times_.plan += Lap();
  job_.plan = next.plan;
  job_.planned = {};
  std::vector<JobMember> members;
  for (const int place : next.ranks) {
    members.push_back(At(place));
    members.back().keeps_state = membership_.has_state(place);
  }
  coordinator.set_replication(ReplicationOf(job_.programs, job_.plan, options_.replicate_every));
  WEFT_RETURN_IF_ERROR(coordinator.BeginAgainAs(members));
  times_.join += Lap();
  WEFT_RETURN_IF_ERROR(Equip(coordinator));
  times_.programs += Lap();
  WEFT_RETURN_IF_ERROR(WriteInitialValues(coordinator, job_, StateNames(job_)));
  WEFT_RETURN_IF_ERROR(Restore(coordinator, job_, source));
  times_.state += Lap();
  if (options_.on_plan != nullptr) options_.on_plan(job_.plan);
  return absl::OkStatus();
}

void JobMembers::Settle(const SurvivorPlan& next) {
  come_.clear();
  std::vector<JobMember> places;
  std::vector<int> wanted_as;
  std::vector<std::string> devices;
  for (const int place : next.ranks) {
    if (!membership_.has_state(place)) NoteNewcomer(*At(place).client);
    places.push_back(At(place));
    wanted_as.push_back(wanted_as_[static_cast<size_t>(place)]);
    devices.push_back(DeviceAt(place));
  }
  membership_ = Membership(next.plan);
  places_ = std::move(places);
  wanted_as_ = std::move(wanted_as);
  devices_ = std::move(devices);
  // Plans that follow are made of another one now.
  if (prepared_.has_value()) prepared_->ForgetAll();
  refused_.clear();
  ranks_.clear();
  for (size_t rank = 0; rank < places_.size(); ++rank) ranks_.push_back(static_cast<int>(rank));
}

absl::StatusOr<JobMembers::Rebuilt> JobMembers::Rebuild(Coordinator& coordinator, bool asks_workers,
                                                        const std::vector<WorkerClient*>& givers) {
  Begin(coordinator);
  times_ = {};
  while (true) {
    LetGo();
    PlaceWaiting();
    Lap();
    if (options_.wait > absl::ZeroDuration()) Await(coordinator);
    times_.wait += Lap();
    const std::map<int, int> by_rank = membership_.PlacesByRank();
    std::vector<int> ranks, taken;
    std::vector<WorkerClient*> holders = givers;
    for (const auto& [rank, place] : by_rank) {
      ranks.push_back(rank);
      taken.push_back(place);
      if (membership_.has_state(place)) holders.push_back(At(place).client);
    }
    WEFT_ASSIGN_OR_RETURN(SurvivorPlan next, PlanForFewer(membership_.wide_plan(), ranks));
    for (int& rank : next.ranks) rank = by_rank.at(rank);  // places from here on
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StateSource> source,
                          FindState(holders, asks_workers));
    times_.state += Lap();
    const absl::Status begun = BeginAgain(coordinator, next, *source);
    if (begun.ok()) {
      // The plan has no place for them.
      std::vector<int> rest;
      for (const int place : taken) {
        const bool is_in =
            std::find(next.ranks.begin(), next.ranks.end(), place) != next.ranks.end();
        if (!is_in) rest.push_back(place);
      }
      LosePlaces(rest);
      Settle(next);
      Prepare();
      return Rebuilt{source->step(), source->text()};
    }
    Log(LogLevel::kWarning, "the job could not begin again: ", begun.ToString());
    const std::vector<int> lost = IsLoss(begun) ? FindLost(taken) : std::vector<int>();
    if (lost.empty() && !LeaveNewcomersOut(taken, begun)) return begun;
    LosePlaces(lost);
  }
}

void JobMembers::NoteNewcomer(const WorkerClient& newcomer) {
  come_.push_back(newcomer.name());
  if (unasked_.contains(&newcomer)) options_.source->TakenIn(newcomer);
}

std::vector<int> JobMembers::FindLost(const std::vector<int>& places) {
  std::vector<int> lost;
  for (const int place : places) {
    const absl::Status answer = At(place).client->Ask(StepProgressRequest{}).status();
    if (absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer)) lost.push_back(place);
  }
  return lost;
}

bool JobMembers::LeaveNewcomersOut(const std::vector<int>& places, const absl::Status& why) {
  std::vector<int> newcomers;
  for (const int place : places) {
    if (!membership_.has_state(place)) newcomers.push_back(place);
  }
  if (newcomers.empty()) return false;
  for (const int place : newcomers) {
    WorkerClient& client = *At(place).client;
    if (unasked_.erase(&client) > 0) {
      membership_.Lose(place, membership_.incarnation(place));
      options_.source->Refuse(client, why);
    } else {
      refused_.insert(place);
    }
  }
  LosePlaces(newcomers);
  options_.say(absl::StrCat("warning: a worker in the place of a lost one cannot be used: ",
                            std::string(why.message())));
  return true;
}

absl::Status JobMembers::Change(Coordinator& coordinator) {
  Begin(coordinator);
  times_ = {};
  while (true) {
    LetGo();
    PlaceWaiting();
    Lap();
    if (options_.wait > absl::ZeroDuration()) Await(coordinator);
    times_.wait += Lap();
    WEFT_ASSIGN_OR_RETURN(const NextMembers next, membership_.Next());
    // The rest of a replica that is not whole: its state gets old.
    std::vector<int> rest;
    for (int place = 0; place < membership_.size(); ++place) {
      const bool is_in =
          std::find(next.places.begin(), next.places.end(), place) != next.places.end();
      if (!is_in && membership_.has_state(place)) rest.push_back(place);
    }
    LosePlaces(rest);
    const absl::Status taken = TakeIn(coordinator, next);
    if (taken.ok()) {
      come_.clear();
      for (const Handover& one : next.handovers) {
        NoteNewcomer(*At(next.places[static_cast<size_t>(one.to)]).client);
      }
      membership_.Settle(next);
      ranks_ = next.places;
      WantVacancies();
      Prepare();
      return absl::OkStatus();
    }
    Log(LogLevel::kWarning, "members could not change: ", taken.ToString());
    const std::vector<int> lost = IsLoss(taken) ? FindLost(next.places) : std::vector<int>();
    if (lost.empty() && !LeaveNewcomersOut(next.places, taken)) return taken;
    LosePlaces(lost);
  }
}

}  // namespace weft
